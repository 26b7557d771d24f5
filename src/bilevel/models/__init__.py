"""Losses whose derivatives are known: one file or folder each, and none knows another."""
