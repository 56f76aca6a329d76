"""Tracks the sessions of each key, so that they end with their key."""

from collections.abc import Callable

from gateway.wire.errors import ProtocolError
from router.classify.task import Tenant

End = Callable[[ProtocolError], None]


class KeySessions:
    """Tracks the open connections and running responses of each key."""

    def __init__(self) -> None:
        # The tenant is part of the key, since keys of the configuration have the same ids in each.
        self._ends: dict[tuple[str, str], dict[End, Tenant]] = {}

    def add(self, tenant: Tenant, end: End) -> Callable[[], None]:
        """Registers `end` to be called when the tenant's key ends; returns its removal."""
        key = (tenant.id, tenant.key_id)
        ends = self._ends.setdefault(key, {})
        ends[end] = tenant

        def remove() -> None:
            ends.pop(end, None)
            if not ends and self._ends.get(key) is ends:
                del self._ends[key]

        return remove

    def end_refused(self, refusal: Callable[[Tenant], ProtocolError | None]) -> int:
        """Ends the sessions of refused keys; returns how many there were."""
        num_ended = 0
        for ends in list(self._ends.values()):
            error = refusal(next(iter(ends.values())))
            if error is None:
                continue
            for end in list(ends):
                del ends[end]
                end(error)
                num_ended += 1
        self._ends = {key: ends for key, ends in self._ends.items() if ends}
        return num_ended
