"""Few-shot learning: an embedding outside, linear heads or whole networks inside."""
