"""Mistakes that the user can fix."""


class UserError(ValueError):
    """Bad input to a command or loader: its text says what is wrong and what to do.

    The command line prints it without a stack trace and exits with code 2.
    """
