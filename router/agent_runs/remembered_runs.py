"""Remembers how runs went, so that a conversation's next request is read from where it left off.

A context is recognised by the hash of its prompt (`backends.prompt`), however it comes: chained by
`previous_response_id`, on the socket or from the store, or sent whole again.
"""

from collections import OrderedDict

from backends.contract import ContextItem, GenerateRequest, Reasoning
from router.agent_runs.run_state import NEW_RUN, RunState, read

MAX_RUNS = 8_192  # about 1 KB each; requests of one conversation share most of it
MAX_NEW_ITEMS = 64  # since the last request, with what that was answered
MAX_ITEMS = 256  # of a context that is not known here: its newest are read


class RememberedRuns:
    """Holds one process's latest run states by tenant and prompt."""

    def __init__(self, max_runs: int = MAX_RUNS) -> None:
        self._max_runs = max_runs
        self._runs: OrderedDict[tuple[str, int], RunState] = OrderedDict()

    def run_of(self, tenant_id: str, request: GenerateRequest) -> RunState:
        """Returns how the run in a request's context goes, and reads only what is new in it."""
        items, prefix = request.items, request.prefix
        if len(items) < 2:
            return read(NEW_RUN, items)  # the first ask, which the second request can read again
        known, num_new = NEW_RUN, len(items)
        for num_since, (prompt, _) in enumerate(reversed(prefix[-1 - MAX_NEW_ITEMS :])):
            found = self._runs.get((tenant_id, prompt))
            if found is not None:
                known, num_new = found, num_newest_items(items, num_since)
                break
        new = items[len(items) - min(num_new, MAX_ITEMS) :]
        run = read(known, new)
        if prefix:
            self._remember((tenant_id, prefix[-1][0]), run)
        return run

    def _remember(self, key: tuple[str, int], run: RunState) -> None:
        self._runs[key] = run
        self._runs.move_to_end(key)
        while len(self._runs) > self._max_runs:
            self._runs.popitem(last=False)

    def erase(self, tenant_id: str) -> None:
        """Drops all of a tenant's."""
        for key in [key for key in self._runs if key[0] == tenant_id]:
            del self._runs[key]


def num_newest_items(items: tuple[ContextItem, ...], num_entries: int) -> int:
    """Returns how many of the newest items have that many entries in the prompt's prefix."""
    num_items = 0
    for entry in reversed(items):
        if num_entries == 0:
            break
        num_items += 1
        if entry.num_tokens and not isinstance(entry.item, Reasoning):
            num_entries -= 1
    return num_items
