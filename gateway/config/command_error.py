"""Defines the error that ends a command with a message and an exit status."""


class CommandError(Exception):
    """Ends a command; the message says what to do."""

    exit_status = 2  # of the process
