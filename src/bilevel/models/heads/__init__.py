"""Few-shot learning: an embedding in x, linear heads or whole networks in y."""
