"""Makes arrivals of a public request trace: times, lengths and, where it has them, its blocks."""

from collections.abc import Iterable, Iterator, Mapping

from backends.contract import BackendGroup
from router.backtest.arrivals import AnswerLength, Arrival
from router.pools.pools import GROUPS
from wafer_engine.calibration.prefix_blocks import prefix_of

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
