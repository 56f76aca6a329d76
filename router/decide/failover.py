"""Chooses another backend when one fails, and says when a silent one has.

Before its first word a generation is begun again; behind it, the answer is gone on with from the
words that were sent, on a backend that takes them as its own first ones.
"""

from collections.abc import Callable, Sequence, Set

from backends.contract import BackendError

MAX_SPARES = 2  # tried for one backend of a route; each costs its own wait
# The codes of an engine that has no room for a task. A client that asked for its route is told so.
REFUSALS = frozenset(("rate_limit_exceeded", "server_is_overloaded"))
MAX_CONTINUATIONS = 2  # of one generation's words: an answer that breaks at every engine must end

# We say that a stream is stalled once it has been silent for 20 of its own tokens' times, which no
# batch or preemption of a working engine makes it, and for 3 s at least.
STALL_TOKENS = 20
MIN_STALL_US = 3_000_000
# We give an engine that has said nothing at all 20 times what 95 % of its answers take to their
# first words, and a tenth of what its options allow it, since a server may load its model or think
# unseen. A prompt is read at 1,000 tokens a second at least.
SILENT_TIMES = 20
SILENT_SHARE = 10
READ_US = 1_000


def replacement(
    spares: Sequence[str],
    failed: Set[str],
    error: BackendError,
    *,
    usable: Callable[[str], bool],
) -> str | None:
    """Returns the backend to go on with, or None if there is none or if a retry is not possible.

    `spares` come from the ranking, best first; those that `failed` are the last choice once words
    were sent, and none before. `usable` says which backends take such a generation now.
    """
    if not error.retryable:
        return None
    return next((name for name in spares if name not in failed and usable(name)), None)


def silence_us(late_words_us: float, timeout_us: int, num_prompt_tokens: int) -> int:
    """Returns how long an engine may say nothing at all while another one is idle.

    Args:
        late_words_us: In which time 95 % of its latest answers had words.
        timeout_us: How long its options let it take to its first token.
        num_prompt_tokens: How much it has to read.
    """
    least_us = max(MIN_STALL_US, timeout_us // SILENT_SHARE, SILENT_TIMES * int(late_words_us))
    return least_us + READ_US * num_prompt_tokens


def stall_us(num_tokens: int, duration_us: int) -> int:
    """Returns how long a stream may be silent between two words.

    Args:
        num_tokens: How many tokens it has sent.
        duration_us: The time from its first to its last.
    """
    return max(MIN_STALL_US, STALL_TOKENS * duration_us // max(1, num_tokens - 1))
