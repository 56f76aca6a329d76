"""The policy as data: what an admin decides about routes. `ranking.rank` applies it.

A document is TOML; `parse_policy` reads and checks it:

    version = "2026-01-15"
    interactive = { route = "fast", fallback = ["deep"] }

    [aliases.careful]
    route = "deep"

    [[rules]]
    name = "big-contexts-go-deep"
    when = { context_tokens_from = 60000 }
    route = "deep"
"""

import tomllib

import msgspec

from backends.contract import BackendGroup
from router.classify import Band
from router.conditions import When
from router.local_pools import WhenAway
from router.strategies.options import DEFAULT_OPTIONS, StrategyOptions
from router.task import Label, Route, Strategy

MAX_POLICY_BYTES = 262_144
MAX_RULES = 64
AUTO = "auto"  # the model that leaves the choice to the router


class PolicyError(ValueError):
    """The document is no valid policy; the message says where and what to do."""


class Choice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A route to take, and what to take instead, in order, when it is full or down."""

    route: Route
    strategy: Strategy | None = None  # PARALLEL only; None: the policy's `strategy`
    fallback: tuple[Route, ...] = ()


class Rule(Choice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A choice for the tasks it is meant for."""

    name: str  # a metric label: unique, and one of at most `MAX_RULES`
    when: When = When()


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an admin decides about routes. Every default here is the default policy's."""

    version: str = "default"
    band: Band = Band()
    strategy: Strategy = "brief"
    strategies: StrategyOptions = DEFAULT_OPTIONS
    security_goes_deep: bool = True
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
    )
    when_away: dict[BackendGroup, WhenAway] = {}  # while Redis is away; else the configuration's
    aliases: dict[str, Choice] = {}  # model name -> choice; hides a backend's model of that name

    def choice_of(self, label: Label) -> Choice:
        if label == "interactive":
            return self.interactive
        return self.deep if label == "deep" else self.uncertain


DEFAULT_POLICY = Policy()


def parse_policy(document: bytes) -> Policy:
    """A policy from TOML; what it leaves out is as in the default policy.

    Raises:
        PolicyError: Not TOML (with line and column), an unknown or ill-typed field (with its path),
            or a policy that contradicts itself.
    """
    if len(document) > MAX_POLICY_BYTES:
        raise PolicyError(f"the policy has {len(document)} bytes; at most {MAX_POLICY_BYTES} fit")
    try:
        policy = msgspec.convert(tomllib.loads(document.decode()), Policy)
    except UnicodeDecodeError as error:
        raise PolicyError(f"the policy is not UTF-8: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"the policy is not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise PolicyError(f"in the policy: {error}") from error
    _check(policy)
    return policy


def _check(policy: Policy) -> None:
    band = policy.band
    if not 0 <= band.low <= band.high <= 1:
        raise PolicyError(
            f"in `band`: 0 <= low <= high <= 1 must hold, got {band.low}, {band.high}"
        )
    if len(policy.rules) > MAX_RULES:
        raise PolicyError(f"in `rules`: {len(policy.rules)} rules; at most {MAX_RULES} are allowed")
    names = [rule.name for rule in policy.rules]
    for name in names:
        if names.count(name) > 1:
            raise PolicyError(f"in `rules`: two rules are named {name!r}; names must differ")
    if AUTO in policy.aliases:
        raise PolicyError(f"in `aliases`: {AUTO!r} is the router itself and cannot be an alias")
    choices: dict[str, Choice] = {f"rules.{rule.name}": rule for rule in policy.rules}
    choices |= {f"aliases.{name}": choice for name, choice in policy.aliases.items()}
    choices |= {"interactive": policy.interactive, "uncertain": policy.uncertain}
    for place, choice in (choices | {"deep": policy.deep}).items():
        routes = (choice.route, *choice.fallback)
        if len(set(routes)) < len(routes):
            raise PolicyError(f"in `{place}`: a route is named twice")
        if choice.strategy is not None and Route.PARALLEL not in routes:
            raise PolicyError(f"in `{place}`: `strategy` needs the route `parallel`")
