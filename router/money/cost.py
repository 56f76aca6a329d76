"""Weighs input, cached and output tokens by group; token pools and daily budgets count the result.

With every weight 1, the default, a cached token counts like any other input.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from backends.contract import BackendGroup, Usage

MAX_WEIGHT = 1_000.0
_PER_UNIT = 1_000  # weights are applied in thousandths, so that sums are exact

Weight = Annotated[float, Meta(ge=0, le=MAX_WEIGHT)]


class CostWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds the weight of one token of each kind, to three decimals."""

    input: Weight = 1.0
    cached: Weight = 1.0  # input that was served from a KV prefix
    output: Weight = 1.0


EVEN = CostWeights()
Weights = Mapping[BackendGroup, CostWeights]


def cost_by_group(
    used: Iterable[tuple[BackendGroup, Usage]], weights: Weights
) -> dict[BackendGroup, int]:
    """Sums the weighted tokens of each group."""
    sums: dict[BackendGroup, Usage] = {}
    costs: dict[BackendGroup, int] = {}
    for group, usage in used:
        total = sums[group] = sums[group] + usage if group in sums else usage
        costs[group] = cost_tokens(total, weights.get(group, EVEN))
    return costs


def cost_tokens(usage: Usage, weights: CostWeights) -> int:
    """Returns a usage in weighted tokens, rounded up."""
    if weights is EVEN:  # the default: the same sum without the multiplications
        return usage.num_input_tokens + usage.num_output_tokens
    cached = min(usage.num_cached_tokens, usage.num_input_tokens)
    total = (
        (usage.num_input_tokens - cached) * round(weights.input * _PER_UNIT)
        + cached * round(weights.cached * _PER_UNIT)
        + usage.num_output_tokens * round(weights.output * _PER_UNIT)
    )
    return -(-total // _PER_UNIT)
