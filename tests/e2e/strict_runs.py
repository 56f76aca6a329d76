"""Lists the strategies as they run before a `StrictUpstream`, and the parts that may break."""

from typing import NamedTuple

from router.strategies.table import STRATEGIES
from tests.e2e.strict_upstream import PLAN, SO_FAR, TOKENS


class StrictRun(NamedTuple):
    """Says how an ask is made."""

    metadata: dict[str, str]
    more: str = ""  # that the ask says besides
    num_answers: int = 1
    parts: tuple[str, ...] = ()  # `GROUP:PART` of the generations, as `fault=` names them

    def ask(self, name: str, fault: str = "") -> str:
        """Returns the client's words, of no other run's."""
        return f"Tell me, {name}.{self.more}{f' fault={fault}' if fault else ''}"


RUNS: dict[str, StrictRun] = {
    "auto": StrictRun({}, parts=("fast:answer", "deep:answer")),
    "fast": StrictRun({"route": "fast"}, parts=("fast:answer",)),
    "deep": StrictRun({"route": "deep"}, parts=("deep:answer",)),
    **{name: StrictRun({"strategy": name}) for name in STRATEGIES},
    "draft": StrictRun({"strategy": "draft"}, parts=("fast:answer", "deep:answer")),
    "hedge": StrictRun({"strategy": "hedge"}, parts=("deep:answer",)),
    "hedge at once": StrictRun(
        {"strategy": "hedge", "hedge_after_ms": "0"}, parts=("fast:answer", "deep:answer")
    ),
    "verify": StrictRun({"strategy": "verify"}, parts=("fast:answer",)),
    "verify by a verdict": StrictRun(
        {"strategy": "verify", "n": "1"},
        " verdict=no",
        parts=("fast:answer", "deep:verdict", "deep:answer"),
    ),
    "verify rejects": StrictRun({"strategy": "verify", "accept": "x"}, parts=("fast:answer",)),
    "breadth": StrictRun({"strategy": "breadth"}, parts=("fast:answer", "deep:judge")),
    "breadth unjudged": StrictRun(
        {"strategy": "breadth", "judge": "false", "n": "3"}, num_answers=3
    ),
    "delegate": StrictRun({"strategy": "delegate"}, parts=("fast:answer",)),
    "delegate with a sub-task": StrictRun(
        {"strategy": "delegate"},
        " please delegate",
        parts=("fast:answer", "deep:subtask", "fast:meanwhile", "fast:closing"),
    ),
    "advise": StrictRun({"strategy": "advise"}, parts=("fast:answer",)),
    "advise with advice": StrictRun(
        {"strategy": "advise"},
        " please advise",
        parts=("fast:answer", "deep:advice", "fast:closing"),
    ),
}
_LENGTHS = {"verdict": 1, "advice": len(PLAN), "meanwhile": len(SO_FAR)}


def num_tokens(part: str) -> int:
    """Returns how many tokens a generation for such a part has."""
    return _LENGTHS.get(part.partition(":")[2], len(TOKENS))
