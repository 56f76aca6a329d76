"""Finds what is valid in a policy but surely not meant: slips, each with its place in the document.

`slips_of` is what `check` warns of. A slip is no error, since names come and go, and what has no
effect does no harm; a new kind is one generator of `_SLIPS`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from backends.contract import BackendGroup
from router.policy.conditions import When
from router.policy.document import Document, Fault, Problem, read_document, suggestion
from router.policy.policy import AUTO, DEFAULT_POLICY, MAX_POLICY_BYTES, Policy, Rule
from router.policy.positions import Path

MAX_SLIPS = 50  # in one answer


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the names that there are; None: nobody knows them, so none is unknown."""

    tenants: Collection[str] | None = None
    tiers: Collection[str] | None = None
    models: Collection[str] | None = None  # the engines' own
    backends: Mapping[str, BackendGroup] | None = None


class _Reading(msgspec.Struct, frozen=True):
    """Holds a policy, the document that it was read from, and what there is."""

    policy: Policy
    document: Document
    known: Known

    def gives(self, *path: str | int) -> bool:
        """Says whether the document itself holds a value at a path."""
        return path in self.document.positions


def slips_of(policy: Policy, content: bytes, name: str, known: Known) -> tuple[Problem, ...]:
    """Finds the slips of a policy in the document that it was read from, in the text's order."""
    document = read_document(content, name, MAX_POLICY_BYTES)
    reading = _Reading(policy, document, known)
    found = (document.problem(fault) for find in _SLIPS for fault in find(reading))
    ordered = sorted(found, key=lambda problem: (problem.line or 0, problem.column or 0))
    return tuple(ordered[:MAX_SLIPS])


def _unknown(noun: str, name: str, known: Collection[str] | None) -> str | None:
    """Says that there is no such name; None if there is, or nobody knows."""
    if known is None or name in known:
        return None
    return f"no {noun} {name!r} here{suggestion(name, known)}"


def _nothing(reading: _Reading) -> Iterator[Fault]:
    """A file that was emptied or not filled in is valid, and puts the default policy in force."""
    given = {path[0] for path in reading.document.positions if path}
    if not given - {"version", "description"}:
        yield Fault((), "it says nothing of tasks: all of it is as in the default policy")


def _unknown_tenants_and_tiers(reading: _Reading) -> Iterator[Fault]:
    known = reading.known
    for tenant_id in reading.policy.tenants:
        if message := _unknown("tenant", tenant_id, known.tenants):
            yield Fault(("tenants", tenant_id), message, at_key=True)
    for path, when in _all_conditions(reading.policy):
        for n, tenant_id in enumerate(when.tenants or ()):
            if message := _unknown("tenant", tenant_id, known.tenants):
                yield Fault((*path, "tenants", n), message)
        for n, tier in enumerate(when.tiers or ()):
            if message := _unknown("tier", tier, known.tiers):
                yield Fault((*path, "tiers", n), message)


def _models(reading: _Reading) -> Iterator[Fault]:
    """Rules are asked for the model `auto` alone: an alias or an engine's model decides before."""
    policy, models = reading.policy, reading.known.models
    aliases = {alias for _, level in policy.levels() for alias in level.aliases}
    for path, when in _all_conditions(policy):
        for n, model in enumerate(when.models or ()):
            message: str | None = None
            if model in aliases:
                message = f"no rule sees {model!r}: the alias itself decides; change it there"
            elif model in (models or ()):
                message = f"no rule sees {model!r}: who names an engine's own model gets it"
            elif models is not None:
                message = _unknown("model", model, {AUTO})
            if message:
                yield Fault((*path, "models", n), message)


def _backends(reading: _Reading) -> Iterator[Fault]:
    backends = reading.known.backends
    if backends is None:
        return
    for path, choice in reading.policy.all_choices():
        groups = {group for route in (choice.route, *choice.fallback) for group in route.groups}
        for n, name in enumerate(choice.backends):
            message = _unknown("backend", name, backends)
            if message is None and backends[name] not in groups:
                message = (
                    f"{name!r} is of the group {backends[name]!r}, where this never goes: its "
                    f"routes reach {' and '.join(sorted(groups))}"
                )
            if message:
                yield Fault((*path, "backends", n), message)


def _empty_ranges(reading: _Reading) -> Iterator[Fault]:
    for path, when in _all_conditions(reading.policy):
        for name in when.__struct_fields__:
            value = getattr(when, name)
            if name.endswith("_below") and value is not None:
                stem = name.removesuffix("_below")
                least = getattr(when, f"{stem}_from", None)
                if value == 0 or (least is not None and least >= value):
                    words = f"{stem} is never below {value:g}"
                    words += f" and {least:g} or more" if least is not None else ""
                    yield Fault((*path, name), f"{words}, so this never holds")
            elif value == ():
                yield Fault((*path, name), "an empty list never holds")
        window = when.time
        if window is None:
            continue
        if window.days == ():
            yield Fault((*path, "time", "days"), "no day is named, so this never holds")
        if window.since and window.before and window.since >= window.before:
            message = f"it begins at {window.since} and so never holds"
            yield Fault((*path, "time", "before"), message)


def _hidden_rules(reading: _Reading) -> Iterator[Fault]:
    for path, level in reading.policy.levels():
        if not reading.gives(*path, "rules"):
            continue
        for n, rule in enumerate(level.rules):
            hiding = next((one for one in level.rules[:n] if _takes_all_of(one, rule)), None)
            if rule.enabled and hiding is not None:
                message = f"never reached: {hiding.name!r} takes all of its tasks before"
                yield Fault((*path, "rules", n, "name"), message)
            tenants = rule.when.tenants
            if path and tenants is not None and path[1] not in tenants:
                message = f"never holds: these rules are asked for {path[1]!r} alone"
                yield Fault((*path, "rules", n, "when", "tenants"), message)


def _takes_all_of(rule: Rule, other: Rule) -> bool:
    """Says whether a rule surely takes every task that another, later one would."""
    share, others = (100 if each.percent is None else each.percent for each in (rule, other))
    same_ones = share >= 100 or (rule.seed is not None and rule.seed == other.seed)
    return rule.enabled and same_ones and others <= share and _follows(rule.when, other.when)


def _follows(wide: When, narrow: When) -> bool:
    """Says whether one condition surely holds wherever a narrower one does."""
    for name in wide.__struct_fields__:
        asked, given = getattr(wide, name), getattr(narrow, name)
        if asked is not None and (given is None or not _covers(name, asked, given)):
            return False
    return True


def _covers(name: str, asked: Any, given: Any) -> bool:
    if name.endswith("_from"):
        return bool(given >= asked)
    if name.endswith("_below"):
        return bool(given <= asked)
    if name == "metadata":
        return all(key in given and set(given[key]) <= set(asked[key]) for key in asked)
    if isinstance(asked, tuple) and name not in ("all", "any"):
        return set(given) <= set(asked)
    return bool(asked == given)


def _idle_bands(reading: _Reading) -> Iterator[Fault]:
    policy = reading.policy
    for path, level in policy.levels():
        tradeoff = level.tradeoff or policy.tradeoff
        setting = "quality" if tradeoff.quality is not None else "preset"
        if getattr(tradeoff, setting) is None:
            continue
        if not path and any(_has_own_band(own) for own in policy.tenants.values()):
            continue
        for edge in ("low", "high"):
            if reading.gives(*path, "band", edge):
                message = f"has no effect beside `tradeoff.{setting}`, which sets both edges"
                yield Fault((*path, "band", edge), message, at_key=True)


def _has_own_band(own: Any) -> bool:
    """Says whether a tenant goes by the common band although the policy has a preset."""
    tradeoff = own.tradeoff
    return tradeoff is not None and tradeoff.quality is None and tradeoff.preset is None


def _dropped_defaults(reading: _Reading) -> Iterator[Fault]:
    if not reading.gives("rules"):
        return
    given = {rule.name for rule in reading.policy.rules}
    if dropped := [rule.name for rule in DEFAULT_POLICY.rules if rule.name not in given]:
        message = (
            f"these rules replace the default ones: {', '.join(dropped)} no longer hold. Copy them "
            "from `lanewise policy show 0`; one with `enabled = false` says that it is meant so"
        )
        yield Fault(("rules",), message, at_key=True)


def _all_conditions(policy: Policy) -> Iterator[tuple[Path, When]]:
    for path, rule in policy.all_rules():
        yield from rule.when.walk((*path, "when"))


_SLIPS: tuple[Callable[[_Reading], Iterator[Fault]], ...] = (
    _nothing,
    _unknown_tenants_and_tiers,
    _models,
    _backends,
    _empty_ranges,
    _hidden_rules,
    _idle_bands,
    _dropped_defaults,
)
