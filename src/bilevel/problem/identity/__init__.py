"""What a problem is, as words to compare: its data, and its losses with all that they use."""
