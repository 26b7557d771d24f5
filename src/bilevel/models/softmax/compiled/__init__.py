"""Softmax regression by compiled kernels: tensors outside, kernels inside."""
