"""Defines a strategy's record, which is all that other modules know of it.

A strategy's module holds its machine, its kinds of parts, its options and, last, its record;
`table.py` lists the records.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from backends.contract import BackendGroup, GenerateRequest, Usage
from router.classify.task import OptionValue
from router.strategies.actions import FAST
from router.strategies.machine import Machine

Shown = Literal["delegations", "variations"]  # fields of `routing` that not every strategy fills


class StrategyOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds a strategy's options with bounds and defaults, as a policy writes them.

    Every strategy has a subclass of its own; field names differ between strategies.
    """


NO_OPTIONS = StrategyOptions()
Own = TypeVar("Own", bound=StrategyOptions)


class ClientOption(NamedTuple):
    """Describes an option that a client sets by metadata."""

    key: str  # in the metadata
    field: str  # of the strategy's options
    kind: type  # int, bool, or str, which is an RE2 pattern
    bounds: tuple[int, int] | None  # of a number


Usages = dict[BackendGroup, Usage]  # expected; what is cached is not known


def at_most(usage: Usage, num_output_tokens: int) -> Usage:
    """Returns the same input usage with a shorter output."""
    return Usage(usage.num_input_tokens, 0, min(usage.num_output_tokens, num_output_tokens))


def reading(num_tokens: int) -> Usage:
    """Returns a usage of that many input tokens."""
    return Usage(num_input_tokens=num_tokens)


@dataclass(frozen=True, kw_only=True)
class StrategyRecord(Generic[Own]):
    """Describes one strategy."""

    name: str
    machine: Callable[[Own, GenerateRequest], Machine]  # a new one for each run
    options: type[Own]
    # What a run is expected to use of each group, where one whole answer uses `once`. Branches with
    # a reservation of their own are not in it.
    usage: Callable[[Own, Usage], Usages] = lambda _options, once: {"fast": once, "deep": once}
    # Adds what the router knows: the task's `p_gain`, and the prices of a deep and of a fast answer
    # in right ones.
    weighed: Callable[[Own, float, float, float], Own] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)  # a client's key -> an option's field
    # Fills in options that nobody has set: by how long 95 % of the answers of the backend with an
    # index take to their first words, in us, or None where that is not measured yet.
    tuned: Callable[[Own, Callable[[int], float | None]], Own] | None = None
    prepared_by: int = FAST  # index of the backend that every run is sure to start
    in_tool_loops: bool = False  # it goes on between a task's tool calls
    competes: bool = False  # one engine wins, the other has lost
    needs_prediction: bool = False  # the deep engine takes `GenerateRequest.prediction`
    calls_tools: Callable[[Own], bool] = lambda _options: True  # false: its answers are texts alone
    shows: frozenset[Shown] = frozenset()
    simulated_as: str = ""  # what a back-test assumes of it; `{handed_on}` is a share from the log

    @cached_property
    def client_options(self) -> tuple[ClientOption, ...]:
        """Lists what a client may set besides the strategy's name."""
        kinds = {each.name: each.type for each in msgspec.structs.fields(self.options)}
        return tuple(
            ClientOption(key, name, *_kind_of(kinds[name])) for key, name in self.metadata.items()
        )

    def options_from(
        self, policy_options: StrategyOptions, asked: Mapping[str, OptionValue]
    ) -> StrategyOptions:
        """Returns this strategy's options by the client's hints, else by the policy."""
        names = self.options.__struct_fields__
        if not names:
            return NO_OPTIONS
        return self.options(**{name: getattr(policy_options, name) for name in names} | {**asked})


def _kind_of(kind: Any) -> tuple[type, tuple[int, int] | None]:
    info = msgspec.inspect.type_info(kind)
    kinds = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    for each in kinds:
        if isinstance(each, msgspec.inspect.IntType):
            assert each.ge is not None
            assert each.le is not None, "a client's number has bounds"
            return int, (each.ge, each.le)
    return (str if isinstance(info, msgspec.inspect.StrType) else bool), None
