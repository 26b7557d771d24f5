"""Weighted, regularised softmax regression, dense or sparse, with all its derivatives."""
