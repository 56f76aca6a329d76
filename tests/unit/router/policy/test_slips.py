"""Tests what `check` warns of: valid, but surely not meant."""

from pathlib import Path

import pytest

from router.policy.policy import DEFAULT_POLICY, parse_policy
from router.policy.slips import Known, slips_of

KNOWN = Known(
    tenants=["acme", "beta"],
    tiers=["pro", "free"],
    models=["lanewise-fast", "lanewise-deep"],
    backends={"wafer": "fast", "gpu": "deep"},
)
DEFAULTS = "\n".join(
    f'[[rules]]\nname = "{rule.name}"\nenabled = false\nroute = "fast"'
    for rule in DEFAULT_POLICY.rules
)


def told(document: str, known: Known = KNOWN) -> list[str]:
    """Returns each slip as `line path: message`, without the default rules that a rule replaces."""
    content = document.encode()
    slips = slips_of(parse_policy(content), content, "policy", known)
    return [f"{slip.line} {slip.path}: {slip.message}" for slip in slips if slip.path != "rules"]


def rule(name: str, *lines: str) -> str:
    """Returns a rule that goes fast."""
    return "\n".join(("[[rules]]", f'name = "{name}"', 'route = "fast"', *lines, ""))


def test_names_that_nothing_here_has() -> None:
    document = """
[[rules]]
name = "a"
route = "fast"
backends = ["wafer", "wafr", "gpu"]
when.any = [{ tenants = ["acme", "acmee"] }, { not = { tiers = ["x"], models = ["auto", "y"] } }]
[aliases.careful]
route = "deep"
backends = ["wafer"]
[tenants.gamma]
"""
    assert told(document) == [
        "5 rules[0].backends[1]: no backend 'wafr' here; did you mean 'wafer'?",
        "5 rules[0].backends[2]: 'gpu' is of the group 'deep', where this never goes: its routes "
        "reach fast",
        "6 rules[0].when.any[0].tenants[1]: no tenant 'acmee' here; did you mean 'acme'?",
        "6 rules[0].when.any[1].not.tiers[0]: no tier 'x' here",
        "6 rules[0].when.any[1].not.models[1]: no model 'y' here",
        "9 aliases.careful.backends[0]: 'wafer' is of the group 'fast', where this never goes: its "
        "routes reach deep",
        "10 tenants.gamma: no tenant 'gamma' here",
    ]
    assert told(document, Known()) == []


def test_a_rule_for_a_model_that_decides_by_itself() -> None:
    document = rule("a", 'when.models = ["careful", "lanewise-deep"]')
    alias, own = told(document + '[aliases.careful]\nroute = "deep"\n')
    assert "no rule sees 'careful'" in alias
    assert "no rule sees 'lanewise-deep'" in own


@pytest.mark.parametrize(
    ("when", "path"),
    [
        ("p_deep_from = 0.6\nwhen.p_deep_below = 0.4", "p_deep_below"),
        ("turns_from = 3\nwhen.turns_below = 3", "turns_below"),
        ("context_tokens_below = 0", "context_tokens_below"),
        ("labels = []", "labels"),
        ("time = { days = [] }", "time.days"),
        (
            "time = { since = 2026-02-01T00:00:00Z, before = 2026-01-01T00:00:00Z }",
            "time.before",
        ),
    ],
)
def test_a_condition_that_never_holds(when: str, path: str) -> None:
    (slip,) = told(rule("a", f"when.{when}"))
    assert f"rules[0].when.{path}: " in slip


@pytest.mark.parametrize(
    ("first", "second", "is_hidden"),
    [
        ("", "when.labels = ['deep']", True),
        ("enabled = false", "when.labels = ['deep']", False),
        ("percent = 50", "when.labels = ['deep']", False),
        ("percent = 100", "when.labels = ['deep']", True),
        ("percent = 50\nseed = 's'", "percent = 20\nseed = 's'", True),
        ("percent = 20\nseed = 's'", "percent = 50\nseed = 's'", False),
        ("percent = 50\nseed = 's'", "percent = 20\nseed = 't'", False),
        ("when.labels = ['deep', 'uncertain']", "when.labels = ['deep']", True),
        ("when.labels = ['deep']", "when.labels = ['deep', 'uncertain']", False),
        ("when.turns_from = 3", "when.turns_from = 5\nwhen.has_tools = true", True),
        ("when.turns_from = 5", "when.turns_from = 3", False),
        ("when.turns_below = 5", "when.turns_below = 5", True),
        ("when.metadata.team = ['a', 'b']", "when.metadata.team = ['a']", True),
        ("when.metadata.team = ['a']", "when.metadata.squad = ['a']", False),
        ("when.not.has_tools = true", "when.not.has_tools = true", True),
    ],
)
def test_a_rule_that_is_never_reached(first: str, second: str, is_hidden: bool) -> None:
    slips = told(rule("first", first) + rule("second", second))
    words = "rules[1].name: never reached: 'first' takes all of its tasks before"
    assert [slip.partition(" ")[2] for slip in slips] == [words] * is_hidden


def test_a_tenants_rule_for_another_tenant() -> None:
    text = '[[tenants.acme.rules]]\nname = "a"\nroute = "fast"\nwhen.tenants = ["beta"]'
    (slip,) = told(text)
    assert "tenants.acme.rules[0].when.tenants: never holds" in slip


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        ("band = { low = 0.1, high = 0.5 }", []),
        ("tradeoff.preset = 'careful'", []),
        ("tradeoff.preset = 'careful'\nband = { security = 0.2 }", []),
        ("tradeoff.preset = 'careful'\nband = { high = 0.7 }", ["band.high"]),
        ("tradeoff.quality = 0.5\nband = { low = 0.1, high = 0.7 }", ["band.low", "band.high"]),
        (
            "tradeoff.preset = 'careful'\ntenants.acme.band.low = 0.1",
            ["tenants.acme.band.low"],
        ),
        (
            "tradeoff.preset = 'careful'\nband.low = 0.1\ntenants.acme.tradeoff.learn = false",
            [],
        ),
    ],
)
def test_a_band_beside_a_preset(document: str, paths: list[str]) -> None:
    assert [slip.split()[1].rstrip(":") for slip in told(document)] == paths


def test_default_rules_that_a_document_drops() -> None:
    content = rule("mine", "when.labels = ['deep']").encode()
    (slip,) = slips_of(parse_policy(content), content, "policy", KNOWN)
    assert (slip.line, slip.path) == (1, "rules")
    assert "agents-reviews-go-deep" in slip.message
    content = DEFAULTS.encode()
    assert slips_of(parse_policy(content), content, "policy", KNOWN) == ()
    of_nothing = slips_of(parse_policy(b""), b"", "policy", KNOWN)
    assert [slip.path for slip in of_nothing] == [""], "it drops no rules"


@pytest.mark.parametrize("document", ["", "# nothing\n", 'version = "x"\n', '{"description": "y"}'])
def test_a_document_that_says_nothing(document: str) -> None:
    (slip,) = told(document)
    assert "it says nothing of tasks: all of it is as in the default policy" in slip
    assert told(f"{document}\nrecord_text = true" if "{" not in document else '{"rules": []}') == []


def test_the_example_has_no_slips() -> None:
    content = Path("deploy/policy.toml").read_bytes()
    known = Known(tiers=KNOWN.tiers, models=KNOWN.models, backends=KNOWN.backends)
    assert slips_of(parse_policy(content), content, "policy", known) == ()
