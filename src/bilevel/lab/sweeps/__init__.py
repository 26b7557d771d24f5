"""Searches over settings, shared by processes that may be killed."""
