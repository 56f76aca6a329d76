"""What ends a command with a message for whoever typed it."""


class CommandError(Exception):
    """The message says what to do; more would only hide it."""

    exit_status = 2  # of the process
