"""From a strategy's name to its machine."""

from backends.contract import GenerateRequest
from backends.delegation import DELEGATE_TOOL
from router.classify.task import Strategy
from router.strategies.actions import Merge
from router.strategies.breadth import Breadth
from router.strategies.brief import Brief
from router.strategies.delegate import Delegate
from router.strategies.options import StrategyOptions
from router.strategies.race import Hedge, Race, Single
from router.strategies.refine import Refine


def merge(strategy: Strategy | None, options: StrategyOptions, request: GenerateRequest) -> Merge:
    """A new machine for one run; `strategy` is None for one engine.

    An answer that must be JSON is one message: clients read all of a response's text as one value.
    `brief` has then nothing to say before the deep answer, and `delegate` hands nothing on.
    """
    in_form = not shows_commentary(request)
    if strategy is None:
        return Single()
    if strategy == "brief":
        return Hedge(after_us=None, apart=False) if in_form else Brief()
    if strategy == "race":
        return Race()
    if strategy == "hedge":
        return Hedge(options.hedge_after_ms * 1_000)
    if strategy == "refine":
        return Refine()
    if strategy == "delegate":
        taken = any(tool.name == DELEGATE_TOOL for tool in request.tools)  # by the client's own
        offered = request.tool_choice.mode == "auto" and not in_form and not taken
        return Delegate(options.max_delegations, offered=offered)
    return Breadth(options.num_variations, judged=options.judged)


def shows_commentary(request: GenerateRequest) -> bool:
    """Whether words beside the answer may be shown; where it needs them they are made anyway."""
    return request.text_format.type == "text"
