"""What a problem is, as words to compare: its data, its losses' code, and all that they compute with."""
