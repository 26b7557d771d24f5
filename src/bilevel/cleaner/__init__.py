"""The `clean` command: from a table with doubtful labels to a report."""
