"""The numbers of the strategies: a policy sets them, a client may ask for others within bounds."""

from typing import Annotated

import msgspec
from msgspec import Meta

MIN_VARIATIONS = 2
MAX_VARIATIONS = 10  # each is a whole generation, and the judge reads them all
MAX_HEDGE_MS = 600_000
MAX_DELEGATIONS = 8

Variations = Annotated[int, Meta(ge=MIN_VARIATIONS, le=MAX_VARIATIONS)]


class StrategyOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the strategies leave open. The defaults are ours, chosen and not measured."""

    # `hedge`: how long the deep engine may stay silent before the fast one joins.
    hedge_after_ms: Annotated[int, Meta(ge=0, le=MAX_HEDGE_MS)] = 500
    num_variations: Variations = 5  # `breadth`
    # `delegate`: sub-tasks in one response.
    max_delegations: Annotated[int, Meta(ge=1, le=MAX_DELEGATIONS)] = 3
    judged: bool = True  # `breadth`: the deep engine reads the variations and answers


DEFAULT_OPTIONS = StrategyOptions()
