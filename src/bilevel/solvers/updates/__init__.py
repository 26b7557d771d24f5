"""Updates: how any point moves."""
