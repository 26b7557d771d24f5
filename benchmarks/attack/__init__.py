"""Hostile input, kills and full disks, by the thousand: see run.py."""
