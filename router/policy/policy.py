"""Defines the routing policy and reads it from TOML or JSON. `ranking.rank` applies it.

An example (docs/policies.md has every field):

    version = "2026-01-15"
    interactive = { route = "fast", fallback = ["deep"] }

    [aliases.careful]
    route = "deep"

    [[rules]]
    name = "big-contexts-go-deep"
    when = { context_tokens_from = 60000 }
    route = "deep"

    [[rules]]
    name = "try-both"
    when = { labels = ["deep"] }
    percent = 10
    route = "parallel"

    [tenants.acme]
    strategy = "breadth"
"""

import hashlib
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Annotated, Any
from zoneinfo import available_timezones

import msgspec
from msgspec import Meta

from backends.contract import BackendGroup
from router.classify.classify import Band
from router.classify.task import TENANT_ID, Label, Route
from router.classify.words import words_of
from router.policy.calendar_window import zone_of
from router.policy.conditions import MAX_CONDITION_DEPTH, MAX_CONDITION_NODES, Test, When
from router.policy.document import DocumentError, Fault, read_document, suggestion
from router.policy.positions import Path
from router.policy.tradeoff import Tradeoff
from router.pools.local_pools import WhenAway
from router.strategies.record import StrategyOptions
from router.strategies.table import STRATEGIES, PolicyOptions, StrategyName
from router.waiting.rules import Waits

MAX_POLICY_BYTES = 262_144
MAX_RULES = 64  # of the common ones, and of each tenant's own
MAX_ALL_RULES = 256  # with all tenants' rules: each is a metric label
MAX_TENANTS = 256
MAX_ALIASES = 64
DIGEST_CHARS = 12
AUTO = "auto"  # the model that leaves the choice to the router

# Printable, and short enough for a metric label.
Name = Annotated[
    str,
    Meta(
        pattern=r"^[\x20-\x7e]{1,64}$",
        description="a name of 1 to 64 printable characters of ASCII",
    ),
]
VersionName = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00-\x1f\x7f]{0,64}$", description="a name of up to 64 printable characters"
    ),
]
GraceSeconds = Annotated[float, Meta(ge=0, le=600)]
TenantId = Annotated[
    str,
    Meta(pattern=f"^{TENANT_ID.pattern}$", description="a tenant id: 1 to 64 of a-z, 0-9 and '-'"),
]


class PolicyError(DocumentError):
    """Reports the problems of a document that is not a valid policy."""


class Choice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names a route, and the routes to try in order when it is full or down."""

    route: Route
    strategy: StrategyName | None = None  # PARALLEL only; None: the policy's `strategy`
    fallback: tuple[Route, ...] = ()
    backends: tuple[Name, ...] = ()  # groups with one of these use no others


class Rule(Choice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Makes a choice for the tasks that meet its conditions."""

    name: Name  # a metric label: unique in the document
    description: str = ""
    enabled: bool = True
    when: When = When()
    percent: Annotated[float, Meta(ge=0, le=100)] | None = None  # of conversations: a canary
    seed: str | None = None  # rules of one seed take the same conversations; None: its name


class TenantPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Overrides a policy's settings for one tenant."""

    band: Band | None = None
    tradeoff: Tradeoff | None = None
    strategy: StrategyName | None = None
    security_goes_deep: bool | None = None
    interactive: Choice | None = None
    uncertain: Choice | None = None
    deep: Choice | None = None
    record_text: bool | None = None
    rejoin_grace_s: GraceSeconds | None = None
    rules: tuple[Rule, ...] = ()  # tried before the common ones
    aliases: dict[Name, Choice] = {}  # besides the common ones


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Holds everything that an admin decides about routes; the defaults are `DEFAULT_POLICY`."""

    version: VersionName = "default"
    description: str = ""
    band: Band = Band()
    tradeoff: Tradeoff = Tradeoff()
    strategy: StrategyName = "hedge"
    strategies: PolicyOptions = PolicyOptions()  # type: ignore[valid-type]  # made by the table
    security_goes_deep: bool = True
    record_text: bool = False  # the decision log gets the prompts' text, too
    # How long responses go on whose connection was lost; 0: not at all; None: as configured.
    rejoin_grace_s: GraceSeconds | None = None
    # Deep is at least as able as fast, so it may stand in; for deep work fast may, and says so.
    interactive: Choice = Choice(route=Route.FAST, fallback=(Route.DEEP,))
    uncertain: Choice = Choice(route=Route.PARALLEL, fallback=(Route.FAST, Route.DEEP))
    deep: Choice = Choice(route=Route.DEEP, fallback=(Route.FAST,))
    rules: tuple[Rule, ...] = (
        Rule(
            name="no-reasoning-wanted",
            when=When(reasoning_effort=("none", "minimal")),
            route=Route.FAST,
            fallback=(Route.DEEP,),
        ),
        Rule(
            name="deadline-too-short-for-deep",
            when=When(deadline_ms_below=5_000),
            route=Route.FAST,
            fallback=(Route.DEEP,),
        ),
        Rule(
            name="agents-housekeeping-goes-fast",
            when=When(agent_role=("auxiliary",)),
            route=Route.FAST,
            fallback=(Route.DEEP,),
        ),
        Rule(
            name="agents-reviews-go-deep",
            when=When(subagent=("review",)),
            route=Route.DEEP,
            fallback=(Route.FAST,),
        ),
    )
    wait_ms: Waits = {}  # the longest wait for a full pool; else the configuration's
    when_away: dict[BackendGroup, WhenAway] = {}  # while Redis is away; else the configuration's
    aliases: dict[Name, Choice] = {}  # model name -> choice; no backend's model
    tenants: dict[TenantId, TenantPolicy] = {}

    def choice_of(self, label: Label) -> Choice:
        """Returns the choice for a class of tasks that no rule took."""
        choice: Choice = getattr(self, label)
        return choice

    def for_tenant(self, tenant_id: str) -> "Policy":
        """Returns the policy with a tenant's own settings, and its own rules first."""
        return self._by_tenant.get(tenant_id, self) if self.tenants else self

    @cached_property
    def _by_tenant(self) -> "dict[str, Policy]":
        return {tenant_id: self._merged(own) for tenant_id, own in self.tenants.items()}

    def _merged(self, own: TenantPolicy) -> "Policy":
        given = {n: value for n, value in msgspec.structs.asdict(own).items() if value is not None}
        given |= {"rules": own.rules + self.rules, "aliases": self.aliases | own.aliases}
        return self._changed(given | {"tenants": {}})

    @cached_property
    def digest(self) -> str | None:
        """Returns what its document's SHA-256 begins with; None for one that has no document.

        `parse_policy` sets it. It tells two documents of one version apart: numbers may begin anew.
        """
        return None

    def named(self, version: str) -> "Policy":
        """Returns the same policy with another name for its version."""
        return self._changed({"version": version})

    def _changed(self, fields: dict[str, Any]) -> "Policy":
        changed = msgspec.structs.replace(self, **fields)
        vars(changed)["digest"] = self.digest
        return changed

    @cached_property
    def strategy_options(self) -> dict[str, StrategyOptions]:
        """Returns each strategy's options, for tasks whose clients set none."""
        return {name: each.options_from(self.strategies, {}) for name, each in STRATEGIES.items()}

    @cached_property
    def enabled_rules(self) -> "tuple[tuple[Rule, tuple[Test, ...]], ...]":
        """Returns the rules that are tried, each with its conditions; all of them must hold."""
        return tuple((rule, rule.when.tests) for rule in self.rules if rule.enabled)

    @cached_property
    def canary_seeds(self) -> tuple[str, ...]:
        """Returns what decides which conversations each canary takes."""
        seeds = {rule.seed or rule.name for rule in self.rules if rule.percent is not None}
        return tuple(sorted(seeds))

    @cached_property
    def metadata_names(self) -> frozenset[str]:
        """Returns the keys of requests' metadata that conditions name."""
        whens = (when for _, rule in self.all_rules() for _, when in rule.when.walk())
        return frozenset(key for when in whens for key in when.metadata or ())

    def levels(self) -> "Iterator[tuple[Path, Policy | TenantPolicy]]":
        """Yields the policy, then each tenant's overrides, with their paths in the document."""
        yield (), self
        yield from ((("tenants", tenant_id), own) for tenant_id, own in self.tenants.items())

    def all_rules(self) -> Iterator[tuple[Path, Rule]]:
        """Yields every rule, the tenants' included, with its path in the document."""
        for path, level in self.levels():
            yield from (((*path, "rules", n), rule) for n, rule in enumerate(level.rules))

    def all_choices(self) -> Iterator[tuple[Path, Choice]]:
        """Yields every choice, rules included, with its path in the document."""
        yield from self.all_rules()
        for path, level in self.levels():
            for label in ("interactive", "uncertain", "deep"):
                choice = getattr(level, label)
                if choice is not None:
                    yield (*path, label), choice
            for name, choice in level.aliases.items():
                yield (*path, "aliases", name), choice


DEFAULT_POLICY = Policy()

# msgspec 0.22 builds what it knows of a type at its first conversion, and the process dies of a
# segmentation fault when two threads do so at once. Policies are read in threads.
msgspec.json.Decoder(Policy)


def parse_policy(content: bytes, name: str = "policy", models: Collection[str] = ()) -> Policy:
    """Reads TOML or JSON over the defaults; `PolicyError` has every problem and its position.

    No alias may have the name of one of the engines' own `models`.
    """
    try:
        document = read_document(content, name, MAX_POLICY_BYTES)
        policy = document.decode(Policy)
        faults = [*_contradictions(policy), *_hidden_models(policy, models)]
        if faults:
            raise document.error(faults)
    except DocumentError as error:
        raise PolicyError(error.problems, name) from error
    vars(policy)["digest"] = hashlib.sha256(content).hexdigest()[:DIGEST_CHARS]
    return policy


def _contradictions(policy: Policy) -> Iterator[Fault]:
    """Checks what the types cannot express."""
    yield from _level_faults(policy)
    seen: set[str] = set()
    for path, rule in policy.all_rules():
        if rule.name in seen:
            message = f"two rules are named {rule.name!r}; names must differ"
            yield Fault((*path, "name"), message)
        seen.add(rule.name)
        if rule.seed is not None and rule.percent is None:
            yield Fault((*path, "seed"), "`seed` needs `percent`")
        yield from _condition_faults(rule, (*path, "when"))
    for path, choice in policy.all_choices():
        routes = (choice.route, *choice.fallback)
        if path[-2:-1] == ("aliases",) and path[-1] == AUTO:
            message = f"{AUTO!r} is the router itself and cannot be an alias"
            yield Fault(path, message, at_key=True)
        if len(set(routes)) < len(routes):
            yield Fault((*path, "fallback"), "a route is named twice")
        if choice.strategy is not None and Route.PARALLEL not in routes:
            yield Fault((*path, "strategy"), "`strategy` needs the route `parallel`")


def _hidden_models(policy: Policy, models: Collection[str]) -> Iterator[Fault]:
    for path, level in policy.levels():
        for alias in level.aliases:
            if alias in models:
                message = (
                    f"{alias!r} is an engine's own model, which clients ask for by this name; "
                    "give the alias another one"
                )
                yield Fault((*path, "aliases", alias), message, at_key=True)


def _level_faults(policy: Policy) -> Iterator[Fault]:
    counts: list[tuple[Path, str, int, int]] = [
        (("tenants",), "tenants", len(policy.tenants), MAX_TENANTS),
        ((), "rules in all", sum(1 for _ in policy.all_rules()), MAX_ALL_RULES),
    ]
    for path, level in policy.levels():
        band = level.band
        if band is not None and not 0 <= band.low <= band.high <= 1:
            message = f"0 <= low <= high <= 1 must hold, got {band.low}, {band.high}"
            yield Fault((*path, "band"), message)
        counts.append(((*path, "rules"), "rules", len(level.rules), MAX_RULES))
        counts.append(((*path, "aliases"), "aliases", len(level.aliases), MAX_ALIASES))
    for path, noun, count, most in counts:
        if count > most:
            yield Fault(path, f"{count} {noun}; at most {most} are allowed")


def _condition_faults(rule: Rule, path: Path) -> Iterator[Fault]:
    depth, nodes = rule.when.size()  # compiles them, too: now, not with the first task
    if depth > MAX_CONDITION_DEPTH:
        message = f"conditions nest {depth} deep; at most {MAX_CONDITION_DEPTH} are allowed"
        yield Fault(path, message)
        return
    if nodes > MAX_CONDITION_NODES:
        yield Fault(path, f"{nodes} conditions; at most {MAX_CONDITION_NODES} are allowed")
        return
    for at, when in rule.when.walk(path):
        if when.time is not None:
            try:
                zone_of(when.time.zone)
            except ValueError as error:
                near = suggestion(when.time.zone, available_timezones())
                hint = near or "; expected a name like Europe/Berlin"
                yield Fault((*at, "time", "zone"), f"{error}{hint}")
        for n, word in enumerate(when.words or ()):
            if not words_of(word.rstrip("*").encode()):
                message = f"{word!r} never counts: it holds no word, or one that is only polite"
                yield Fault((*at, "words", n), message)
