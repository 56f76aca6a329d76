"""Policies from TOML: what is read, and what is refused with words that help."""

import pytest

from router.policy import DEFAULT_POLICY, Choice, PolicyError, parse_policy
from router.strategies.options import StrategyOptions
from router.task import Route

DOCUMENT = b"""
version = "2026-01-15"
strategy = "race"
security_goes_deep = false
band = { low = 0.3, high = 0.7 }
deep = { route = "deep" }
strategies = { hedge_after_ms = 250, num_variations = 7 }

[aliases.careful]
route = "parallel"
strategy = "brief"
fallback = ["deep"]

[[rules]]
name = "big-contexts"
when = { context_tokens_from = 60000, tiers = ["pro"], labels = ["deep", "uncertain"] }
route = "deep"
"""


def test_a_document_is_read_and_the_rest_is_default() -> None:
    policy = parse_policy(DOCUMENT)
    assert policy.version == "2026-01-15"
    assert policy.strategy == "race"
    assert not policy.security_goes_deep
    assert policy.band.low == 0.3
    assert policy.strategies == StrategyOptions(hedge_after_ms=250, num_variations=7)
    assert policy.deep == Choice(route=Route.DEEP)
    assert policy.interactive == DEFAULT_POLICY.interactive
    assert policy.aliases["careful"].fallback == (Route.DEEP,)
    (rule,) = policy.rules
    assert (rule.name, rule.route, rule.when.labels) == (
        "big-contexts",
        Route.DEEP,
        ("deep", "uncertain"),
    )


def test_an_empty_document_is_the_default_policy() -> None:
    assert parse_policy(b"") == DEFAULT_POLICY


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"version = '1'\nversion", "not TOML.*(line 2|end of document)"),
        (b"\xff", "not UTF-8"),
        (b"vresion = 'x'", "unknown field `vresion`"),
        (b"deep = { route = 'slow' }", r"Invalid enum value 'slow' - at `\$.deep.route`"),
        (b"[[rules]]\nname='a'\nroute='fast'\nwhen={ tenant='x' }", r"`tenant` - at .*rules"),
        (b"[[rules]]\nname='a'\nroute='fast'\n" * 2, "two rules are named 'a'"),
        (
            b"".join(b"[[rules]]\nname='a%d'\nroute='fast'\n" % n for n in range(65)),
            "65 rules; at most 64",
        ),
        (b"band = { low = 0.8, high = 0.2 }", "0 <= low <= high <= 1"),
        (b"[aliases.auto]\nroute='fast'", "'auto' is the router itself"),
        (b"deep = { route='deep', fallback=['deep'] }", "in `deep`: a route is named twice"),
        (b"strategies = { num_variations = 11 }", r"<= 10 - at `\$.strategies.num_variations`"),
        (b"[aliases.x]\nroute='deep'\nstrategy='race'", "in `aliases.x`: `strategy` needs"),
        (b"#" * 300_000, "300000 bytes; at most 262144"),
    ],
)
def test_a_wrong_document_is_refused_with_the_place(document: bytes, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        parse_policy(document)
