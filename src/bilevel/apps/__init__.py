"""Ready-made jobs on people's own data; none knows another."""
