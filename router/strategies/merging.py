"""From a strategy's name to its machine."""

from backends.contract import GenerateRequest
from router.strategies.actions import Merge
from router.strategies.breadth import Breadth
from router.strategies.brief import Brief
from router.strategies.delegate import Delegate
from router.strategies.options import StrategyOptions
from router.strategies.race import Hedge, Race, Single
from router.strategies.refine import Refine
from router.task import Strategy


def merge(strategy: Strategy | None, options: StrategyOptions, request: GenerateRequest) -> Merge:
    """A new machine for one run; `strategy` is None for one engine."""
    if strategy is None:
        return Single()
    if strategy == "brief":
        return Brief()
    if strategy == "race":
        return Race()
    if strategy == "hedge":
        return Hedge(options.hedge_after_ms * 1_000)
    if strategy == "refine":
        return Refine()
    if strategy == "delegate":
        return Delegate(options.max_delegations, offered=request.tool_choice.mode == "auto")
    return Breadth(options.num_variations, judged=options.judged)
