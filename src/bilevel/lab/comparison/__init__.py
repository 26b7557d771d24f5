"""Runs side by side: curves, tables and pages."""
