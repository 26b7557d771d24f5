"""One file a contestant. A function of a `Case` gives what is timed: () -> the answer.

Everything before that call is preparation, shown apart; a package that is not installed raises
ImportError there, and the contestant is skipped with a line.
"""
