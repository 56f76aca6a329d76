"""Tests policies from TOML: what is read, and what is refused with words that help."""

import re
import subprocess
import sys
import tomllib

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest

from router.classify.task import Route
from router.policy.policy import DEFAULT_POLICY, Choice, PolicyError, parse_policy
from router.strategies.table import PolicyOptions

DOCUMENT = b"""
version = "2026-01-15"
strategy = "breadth"
security_goes_deep = false
band = { low = 0.3, high = 0.7 }
deep = { route = "deep" }
strategies = { hedge_after_ms = 250, num_variations = 7 }

[aliases.careful]
route = "parallel"
strategy = "hedge"
fallback = ["deep"]

[[rules]]
name = "big-contexts"
when = { context_tokens_from = 60000, tiers = ["pro"], labels = ["deep", "uncertain"] }
route = "deep"
"""


def test_a_document_is_read_and_the_rest_is_default() -> None:
    policy = parse_policy(DOCUMENT)
    assert policy.version == "2026-01-15"
    assert policy.strategy == "breadth"
    assert not policy.security_goes_deep
    assert policy.band.low == 0.3
    assert policy.strategies == PolicyOptions(hedge_after_ms=250, num_variations=7)
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


WRONG: list[tuple[bytes, str]] = [
    (b"version = '1'\nversion", r"p:2:8: not TOML: "),
    (b"a = 1\na = 2", r"p:2:6: not TOML: Cannot overwrite"),
    (b"a = 1\n\xff", "p:2:1: not UTF-8"),
    (b'{"rules": [}', r"p:1:12: not JSON: "),
    (b'{"deep": {"route": "deep"}, "deep": {}}', "the key 'deep' is there twice"),
    (b'{"band": {"low": NaN}}', "NaN is no JSON number"),
    (b"x = " + 2_000 * b"[", "not TOML|nested deeper"),
    (b"x = " + 5_000 * b"9", "not TOML"),
    (b"x = " + 30 * b"[" + 30 * b"]", "nested deeper than 24"),
    (b"vresion = 'x'", "p:1:1: vresion: unknown field 'vresion'; did you mean 'version'"),
    (b"zzz = 'x'", "unknown field 'zzz'; known here: version, description, band"),
    (b"deep = { route = 'slow' }", "p:1:18: deep.route: expected one of 'fast', 'deep', .*'slow'"),
    (b"deep = 'slow'", "p:1:8: deep: expected a table, got a text"),
    (b"rules = 3", "p:1:9: rules: expected a list, got 3"),
    (b"[[rules]]\nname='a'\nroute='fast'\nwhen={ tenant='x' }", "p:4:8: .*did you mean 'tenants'"),
    (b"[[rules]]\nname='a'", r"p:1:3: rules\[0\]: the field 'route' is missing"),
    (
        b"[[rules]]\nname='a'\nroute='fast'\npercent=200",
        "p:4:9: .*a number <= 100",
    ),
    (b"[[rules]]\nname='a'\nroute='fast'\nwhen.tenants=[]", "expected 1 to 256 entries, got 0"),
    (b"[[rules]]\nname='a'\nroute='fast'\nwhen.time.from='9:00'", 'a time of day like "09:00"'),
    (b"[[rules]]\nname='a'\nroute='fast'\nwhen.time.since=2026-01-01T00:00:00", "its zone"),
    (b"[[rules]]\nname='a'\nroute='fast'\nwhen.time.zone='Europe/Berln'", "mean 'Europe/Berlin'"),
    (b"[[rules]]\nname='a'\nroute='fast'\nwhen.words=['please']", "p:4:13: .*never counts"),
    (b"[[rules]]\nname='a'\nroute='fast'\nseed='s'", "p:4:6: .*`seed` needs `percent`"),
    (b"[[rules]]\nname=''\nroute='fast'", "a name of 1 to 64 printable"),
    ("[[rules]]\nname='größer'\nroute='fast'".encode(), "printable characters of ASCII"),
    (b"[[rules]]\nname='a'\nroute='fast'\n" * 2, "p:5:6: .*two rules are named 'a'"),
    (
        b"[[rules]]\nname='a'\nroute='fast'\n[[tenants.acme.rules]]\nname='a'\nroute='deep'",
        r"p:5:6: tenants.acme.rules\[0\].name: two rules are named 'a'",
    ),
    (
        b"".join(b"[[rules]]\nname='a%d'\nroute='fast'\n" % n for n in range(65)),
        "65 rules; at most 64",
    ),
    (b"band = { low = 0.8, high = 0.2 }", "p:1:8: band: 0 <= low <= high <= 1"),
    (b"[tenants.Acme]\nstrategy='hedge'", "p:1:2: tenants.Acme: expected a tenant id"),
    (b"[tenants.acme]\nband = { low = 2.0 }", "p:2:8: tenants.acme.band: 0 <= low"),
    (b"[aliases.auto]\nroute='fast'", "p:1:2: aliases.auto: 'auto' is the router itself"),
    (
        b"deep = { route='deep', fallback=['deep'] }",
        "p:1:33: deep.fallback: .* twice",
    ),
    (
        b"strategy = 'brief'",
        "p:1:12: strategy: expected one of .*, got 'brief'; it was removed: use 'hedge'",
    ),
    (b"strategies = { num_variations = 11 }", "strategies.num_variations: .* <= 10"),
    (
        b"[aliases.x]\nroute='deep'\nstrategy='hedge'",
        "p:3:10: aliases.x.strategy: .* needs",
    ),
    (b"#" * 300_000, "300000 bytes; at most 262144"),
]


@pytest.mark.parametrize(("document", "words"), WRONG)
def test_a_wrong_document_is_refused_with_the_place(document: bytes, words: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(document, "p")
    assert re.search(words, str(caught.value)), str(caught.value)
    assert len(caught.value.problems) == 1, str(caught.value)


def test_everything_wrong_is_told_at_once() -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(b"deeep = 1\nstrategy = 'rase'\n[[rules]]\nname = 'a'")
    assert [problem.line for problem in caught.value.problems] == [1, 2, 3]
    with pytest.raises(PolicyError) as caught:
        parse_policy(b"".join(b"field%d = 1\n" % n for n in range(1_000)))
    assert len(caught.value.problems) == 20


def nested(depth: int) -> bytes:
    tree = depth * "{ any = [" + "{ has_tools = true }" + depth * "] }"
    return f"[[rules]]\nname = 'a'\nroute = 'fast'\nwhen = {tree}".encode()


def test_the_tree_of_conditions_is_bounded() -> None:
    assert parse_policy(nested(7)).rules[0].when.size()[0] == 8
    with pytest.raises(PolicyError, match="nest 9 deep; at most 8"):
        parse_policy(nested(8))
    with pytest.raises(PolicyError, match="nested deeper"):
        parse_policy(nested(400))
    wide = b",".join([b"{ has_tools = true }"] * 101)
    with pytest.raises(PolicyError, match=r"\d+ conditions; at most 200"):
        parse_policy(b"[[rules]]\nname='a'\nroute='fast'\nwhen = { any = [" + wide + b"] }")


@pytest.mark.parametrize("line", ["{} = 1", "  [{}]", "[[ {} ]]", '{}."b" = 1'])
def test_a_key_of_too_many_parts_is_refused_before_it_is_read(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading one of 3,000 parts holds the loop for a tenth of a second."""
    monkeypatch.setattr(tomllib, "loads", lambda text: pytest.fail("it was read"))
    text = "# a comment\n" + line.format(".".join("a" * 3_000))
    with pytest.raises(PolicyError, match=":2:1: nested deeper than 24"):
        parse_policy(text.encode())


def test_json_is_the_same_document() -> None:
    tree = msgspec.to_builtins(parse_policy(DOCUMENT))
    assert parse_policy(msgspec.json.encode(tree)) == parse_policy(DOCUMENT)


TENANTS = b"""
[tenants.acme]
strategy = "breadth"
security_goes_deep = false
deep = { route = "parallel" }
aliases.quick = { route = "fast" }

[[tenants.acme.rules]]
name = "own"
route = "fast"
"""


def test_a_tenants_policy_is_the_common_one_with_its_own_settings() -> None:
    policy = parse_policy(DOCUMENT + TENANTS)
    assert policy.for_tenant("other") is policy
    acme = policy.for_tenant("acme")
    assert [rule.name for rule in acme.rules] == ["own", "big-contexts"]
    assert set(acme.aliases) == {"careful", "quick"}
    assert acme.deep.route is Route.PARALLEL
    assert acme.interactive == policy.interactive
    assert acme.version == policy.version
    assert acme.for_tenant("acme") is acme
    assert acme.digest == policy.digest, "it is of one document"


@hypothesis.settings(deadline=None)  # a busy machine is no fault of the parser
@hypothesis.given(st.binary(max_size=200))
def test_noise_is_refused_or_a_policy(noise: bytes) -> None:
    check_refused_or_parsed(noise)


@hypothesis.settings(deadline=None)  # a busy machine is no fault of the parser
@hypothesis.given(st.data())
def test_mutations_are_refused_or_a_policy(data: st.DataObject) -> None:
    document = bytearray(DOCUMENT + TENANTS)
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(document) - 1))
        document[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    check_refused_or_parsed(bytes(document))


def check_refused_or_parsed(document: bytes) -> None:
    try:
        parse_policy(document)
    except PolicyError as error:
        told = [problem.message for problem in error.problems]
    else:
        return
    assert told
    assert all(told)


READ_AT_ONCE = f"""
import sys, threading
from router.policy.policy import parse_policy

sys.setswitchinterval(1e-6)
together = threading.Barrier(8)

def read():
    together.wait()
    parse_policy({DOCUMENT!r})

threads = [threading.Thread(target=read) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
"""


def test_two_threads_may_read_the_first_policies_at_once() -> None:
    """A process that died here took the gateway's worker with it, in one run of six."""
    command = [sys.executable, "-c", READ_AT_ONCE]
    running = [subprocess.Popen(command) for _ in range(4)]
    assert [each.wait(timeout=60) for each in running] == [0, 0, 0, 0]
