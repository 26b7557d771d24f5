"""What is to be solved: two losses, their data, where to start, and who holds which rows."""
