"""The design claims inside the paper's methods, measured where the truth is known."""
