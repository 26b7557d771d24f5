"""Losses whose derivatives are known: one file or folder each, independent of one another."""
