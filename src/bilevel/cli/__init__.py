"""The command line: one file a command, found by being in this folder.

A command's file has `register(app)`. Heavy imports stand inside the commands' functions, so that
`bilevel --help` answers at once.
"""
