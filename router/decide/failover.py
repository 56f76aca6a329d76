"""Chooses another backend of a group when one fails before its first token."""

from collections.abc import Callable, Sequence, Set

from backends.contract import BackendError

MAX_SPARES = 2  # tried for one backend of a route; each costs its own wait


def replacement(
    spares: Sequence[str],
    failed: Set[str],
    error: BackendError,
    *,
    has_tokens: bool,
    healthy: Callable[[str], bool],
) -> str | None:
    """Returns the backend to retry on, or None if there is none or if a retry is not possible.

    Once a token was sent, another engine could not continue from there. `spares` come from the
    ranking; `healthy` says which backends take new generations now.
    """
    if has_tokens or not error.retryable:
        return None
    return next((name for name in spares if name not in failed and healthy(name)), None)
