"""Defines the record of a stored response, and which records hold a context."""

import msgspec

from backends.contract import ContextItem
from router.learn.pending_outcomes import PendingOutcome

# A chain longer than this starts over with a record that holds the whole context.
MAX_ANCESTORS = 64


class Lineage(msgspec.Struct, frozen=True, gc=False):
    """Names the stored responses, oldest first, that hold the first `num_items` of a context.

    And the size of its latest answer's prompt: who continues it is told no smaller one.
    """

    ids: tuple[str, ...] = ()
    num_items: int = 0
    num_prompt_tokens: int = 0  # by our own count
    num_input_tokens: int = 0  # as its client was told


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Is a stored response; its context is its ancestors' items, `input`, then `output`."""

    response: bytes  # JSON, as sent last
    ancestors: tuple[str, ...]
    input: tuple[ContextItem, ...]  # own ones, and those of unstored responses before it
    output: tuple[ContextItem, ...]
    num_own: int  # of `input`, how many the request itself brought: the last ones
    backend: str | None = None
    can_continue: bool = True
    num_prompt_tokens: int = 0  # as `Lineage` has them, of this response
    num_input_tokens: int = 0
    # Until its outcome is known; stored under the name that it had first.
    pending: PendingOutcome | None = msgspec.field(default=None, name="trial")


class Context(msgspec.Struct, frozen=True):
    """Is a conversation that was loaded."""

    items: tuple[ContextItem, ...]
    backend: str | None
    lineage: Lineage


class Uncontinued(msgspec.Struct, frozen=True):
    """Says in words why a stored response cannot be continued."""

    why: str
