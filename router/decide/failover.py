"""Failover inside a group: who takes over when a backend fails before its first token."""

from collections.abc import Callable, Sequence, Set

from backends.contract import BackendError

MAX_SPARES = 2  # others that may be tried for one backend of a route; each costs its own wait


def replacement(
    spares: Sequence[str],
    failed: Set[str],
    error: BackendError,
    *,
    has_tokens: bool,
    healthy: Callable[[str], bool],
) -> str | None:
    """The backend to begin again on; None where the failure stands.

    A token that was pushed may have been seen, and another engine would not go on from there.
    `spares` are as old as the ranking; `healthy` says who takes new generations now.
    """
    if has_tokens or not error.retryable:
        return None
    return next((name for name in spares if name not in failed and healthy(name)), None)
