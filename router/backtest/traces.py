"""Makes arrivals of a public request trace: times, lengths and, where it has them, prefix hashes.

Mooncake's traces name the blocks of 512 tokens that a prompt shares with others (`hash_ids`). An id
stands for a block and all before it, so a prompt's ids are the prefixes under which caches find it.
"""

from collections.abc import Iterable, Iterator, Mapping

from backends.contract import BackendGroup
from router.backtest.arrivals import AnswerLength, Arrival, Prefix
from router.pools.pools import GROUPS

BLOCK_TOKENS = 512  # of Mooncake's hash ids
MAX_IDS = 4_096  # of one prompt: two million tokens
Lengths = tuple[tuple[BackendGroup, AnswerLength], ...]


def arrivals_of_trace(
    rows: Iterable[Mapping[str, str]], *, tenant: str, start_us: int
) -> list[Arrival]:
    """Makes arrivals of rows with `arrival_s`, `input_tokens` and `output_tokens`, in their order.

    An answer is as long on every engine. Raises ValueError for a row that is none.
    """
    return list(_arrivals(rows, tenant, start_us))


def _arrivals(rows: Iterable[Mapping[str, str]], tenant: str, start_us: int) -> Iterator[Arrival]:
    known: dict[int, Lengths] = {}  # most answers are as long as another
    for number, row in enumerate(rows):
        try:
            at_us = start_us + round(float(row["arrival_s"]) * 1e6)
            prompt_tokens, output_tokens = int(row["input_tokens"]), int(row["output_tokens"])
            prefix = prefix_of(row.get("hash_ids") or "", prompt_tokens)
        except (KeyError, ValueError) as error:
            raise ValueError(f"row {number + 1} of the trace: {error}") from error
        output_tokens = max(1, output_tokens)
        length = AnswerLength(output_tokens)
        lengths = known.setdefault(output_tokens, tuple((group, length) for group in GROUPS))
        yield Arrival(
            id=f"trace_{number}",
            at_us=at_us,
            tenant=tenant,
            prompt_tokens=max(1, prompt_tokens),
            expected_output_tokens=output_tokens,
            prefix=prefix,
            lengths=lengths,
        )


def prefix_of(hash_ids: str, prompt_tokens: int) -> Prefix:
    """Reads ids like `0-78 151 160-197`; the last block ends with the prompt.

    Raises ValueError for other texts.
    """
    ids: list[int] = []
    for part in hash_ids.replace(";", " ").split():
        first, dash, last = part.partition("-")
        ids += range(int(first), int(last if dash else first) + 1)
        if len(ids) > MAX_IDS:
            raise ValueError(f"hash_ids has more than {MAX_IDS} blocks")
    return tuple(
        (each, min(prompt_tokens, (number + 1) * BLOCK_TOKENS))
        for number, each in enumerate(ids)
        if number * BLOCK_TOKENS < prompt_tokens
    )
