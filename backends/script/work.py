"""Bounds the work on one answer, whatever its request asks for.

A simulated engine writes an answer in one go, and nobody else is served meanwhile. What costs time
is counted in characters read or written; `MAX_CHARS` of them take some 40 ms.
"""

MAX_CHARS = 400_000


class TooMuchWorkError(Exception):
    """Says that a part of the request asks for more than may be written; `param` names it."""

    def __init__(self, param: str) -> None:
        super().__init__(
            f"'{param}' asks for more than a simulated engine writes for one message: "
            f"{MAX_CHARS} characters read or written, where nodes of a schema count, too. "
            "Lower minItems, minLength or minProperties, or leave out nesting or options."
        )
        self.param = param


class Work:
    """Holds what is left to spend on one answer."""

    def __init__(self) -> None:
        self._num_left = MAX_CHARS

    def affords(self, num_chars: int) -> bool:
        """Spends so much, or returns False and spends nothing if less is left."""
        if num_chars > self._num_left:
            return False
        self._num_left -= num_chars
        return True

    def spend(self, num_chars: int, param: str) -> None:
        """Spends so much on what `param` asks for; raises `TooMuchWorkError` if less is left."""
        if not self.affords(num_chars):
            raise TooMuchWorkError(param)
