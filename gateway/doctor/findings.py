"""Says what each check found, and how bad that is: from facts to one line that says what to do."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from gateway.config.sections import RedisConfig
from gateway.store.evictions import evicts_all, has_evicted

Level = Literal["ok", "warn", "fail"]

MIN_REDIS = (6, 2)  # the oldest that the tests run against
MAX_CLOCK_OFFSET_S = 1.0  # by which pools' windows and keys' expiry would be wrong
MIN_FREE_DESCRIPTORS = 1_024  # each socket takes one
MIN_CERTIFICATE_DAYS = 21  # ACME renews 30 days ahead: this one was not renewed
BURST_SHARE = 0.2  # of a stream's time: if all came within it, something held the rest back
MIN_STREAM_S = 0.5  # of a shorter stream nothing can be said
LATE_SHARE = 0.5  # of the budget for Redis


class Finding(msgspec.Struct, frozen=True):
    """Says what one check found."""

    check: str
    level: Level
    text: str
    advice: str = ""  # what to do

    @property
    def line(self) -> str:
        """Returns it as a person reads it: one line, whatever a server put into its words."""
        advice = f" -> {self.advice}" if self.advice else ""
        text = "".join(each if each.isprintable() else " " for each in self.text)
        return f"{self.level:4}  {self.check}: {' '.join(text.split())}{advice}"

    def view(self) -> dict[str, Any]:
        """Returns it as a program reads it."""
        return msgspec.structs.asdict(self)


class EngineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Says what came of one request to an engine."""

    name: str
    model: str
    error: str | None = None
    first_ms: float | None = None  # to the first words, or thoughts
    num_tokens: int = 0
    simulated: bool = False


class RedisFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a Redis says of itself."""

    info: Mapping[str, Any]  # of INFO
    round_trip_ms: float
    clock_offset_s: float  # its clock less ours


class StreamFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Says when the events of one streamed answer came, in seconds from the request."""

    first_s: float
    last_s: float


def engine_finding(answer: EngineAnswer) -> Finding:
    """Judges an engine by its answer to one request."""
    check = f"engine {answer.name}"
    if answer.error is not None:
        return Finding(
            check, "fail", f"{answer.model}: {answer.error}", _engine_advice(answer.error)
        )
    if answer.simulated:
        return Finding(check, "ok", f"{answer.model} is simulated: its words are made up")
    if answer.first_ms is None:
        return Finding(
            check, "warn", f"{answer.model} answers without a word", "ask it in `lanewise chat`"
        )
    return Finding(
        check, "ok", f"{answer.model} answers, first words after {answer.first_ms:,.0f} ms"
    )


def _engine_advice(error: str) -> str:
    for pattern, advice in (
        (r"is not set", "export it, or write another name as key_env"),
        (r"a redirect", "write the address that it redirects to as base_url"),
        (
            r"certificate",
            "is its certificate for the name in base_url, and is its issuer known to this machine?",
        ),
        (
            r"404|does not exist|not found",
            "is upstream_model what the server calls it, and base_url up to and with its version?",
        ),
        (r"gateway \((402|412)\)", "is the account paid, and in order?"),
        (
            r"refuses this gateway|401|403",
            "is the key in key_env valid, and for this service?",
        ),
        (r"429|rate limit|quota", "the account is at its limit"),
        (
            r"answered (400|413|422)",
            "does it take every field that it is sent? See omit, max_tokens_field and extra_body",
        ),
        (r"200 without any event", "is base_url its API, up to and with its version?"),
        (r"answered 5\d\d", "it runs, but does not serve: is its model loaded?"),
        (r"no answer within", "is it loading, or overloaded?"),
    ):
        if re.search(pattern, error, re.IGNORECASE):
            return advice
    return "does the server run, at base_url, and may this machine reach it?"


def redis_findings(facts: RedisFacts, config: RedisConfig) -> list[Finding]:
    """Judges a Redis: its version, what it evicts, how far it is, and its clock."""
    info = facts.info
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = str(info.get("valkey_version") or info.get("redis_version", "?"))
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    found = [Finding("redis version", "ok", f"{name} {version}")]
    if numbers < MIN_REDIS:
        oldest = ".".join(map(str, MIN_REDIS))
        found = [
            Finding("redis version", "fail", f"{name} {version}", f"{oldest} or newer is needed")
        ]
    found.append(_eviction(info))
    late = facts.round_trip_ms > config.budget_ms * LATE_SHARE
    found.append(
        Finding(
            "redis distance",
            "warn" if late else "ok",
            f"{facts.round_trip_ms:.1f} ms there and back, of redis.budget_ms = {config.budget_ms}",
            "raise redis.budget_ms, or bring it nearer" if late else "",
        )
    )
    return [*found, clock_finding("Redis", facts.clock_offset_s)]


def _eviction(info: Mapping[str, Any]) -> Finding:
    check, policy = "redis eviction", str(info.get("maxmemory_policy", ""))
    max_memory_bytes = int(info.get("maxmemory", 0))
    if (risk := evicts_all(info)) is not None:
        return Finding(check, "fail", risk, "set maxmemory-policy volatile-lru")
    if max_memory_bytes == 0:
        advice = "set maxmemory, and maxmemory-policy volatile-lru"
        return Finding(check, "warn", f"no maxmemory, policy {policy}", advice)
    if policy == "noeviction":
        advice = "set maxmemory-policy volatile-lru: stored responses may go"
        return Finding(check, "warn", "noeviction: once it is full, every write fails", advice)
    bounded = f"{policy}, maxmemory {max_memory_bytes >> 20} MiB"
    if (lost := has_evicted(info)) is not None:
        advice = "raise maxmemory, or lower store.max_bytes"
        return Finding(check, "warn", f"{bounded}; {lost}", advice)
    return Finding(check, "ok", bounded)


def least_offset_s(low_s: float, high_s: float) -> float:
    """Returns the offset nearest to none of those from `low_s` to `high_s` that are possible.

    A clock was read somewhere between a question and its answer, which a busy machine sets far
    apart; only what that cannot explain is held against the clock.
    """
    return max(low_s, min(high_s, 0.0))


def clock_finding(whose: str, offset_s: float) -> Finding:
    """Judges a clock by how far it is from ours."""
    check = f"clock of {whose}"
    if abs(offset_s) <= MAX_CLOCK_OFFSET_S:
        return Finding(check, "ok", "as ours")
    text = f"{abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} ours"
    return Finding(check, "fail", text, "let both machines follow NTP")


def descriptors_finding(num_open: int, limit: int) -> Finding:
    """Judges how many sockets there is room for."""
    check, text = "file descriptors", f"{num_open:,} of {limit:,} in use"
    if limit - num_open < MIN_FREE_DESCRIPTORS:
        advice = "raise the hard limit: ulimit -Hn, or LimitNOFILE= of the service"
        return Finding(check, "warn", text, advice)
    return Finding(check, "ok", text)


def certificate_finding(whose: str, days_left: float) -> Finding:
    """Judges a certificate by when it expires."""
    check = f"certificate of {whose}"
    if days_left < 0:
        return Finding(check, "fail", f"expired {-days_left:.0f} days ago", "renew it, then SIGHUP")
    text = f"valid for {days_left:.0f} days"
    if days_left < MIN_CERTIFICATE_DAYS:
        return Finding(check, "warn", text, "renew it, then SIGHUP")
    return Finding(check, "ok", text)


def stream_finding(facts: StreamFacts) -> Finding:
    """Judges whether something on the way gathers a stream before it passes it on."""
    check = "streaming"
    if facts.last_s < MIN_STREAM_S:
        return Finding(check, "ok", f"a whole answer in {facts.last_s * 1e3:.0f} ms")
    if facts.last_s - facts.first_s < BURST_SHARE * facts.last_s:
        text = f"all events came at once, after {facts.first_s:.1f} s"
        return Finding(
            check, "fail", text, "a proxy buffers: proxy_buffering off (nginx) or its like"
        )
    text = (
        f"the first event after {facts.first_s * 1e3:.0f} ms, the last after {facts.last_s:.1f} s"
    )
    return Finding(check, "ok", text)


def proxy_findings(environ: Mapping[str, str], hosts: Sequence[str]) -> list[Finding]:
    """Says which proxies of the environment are not used for engines on other machines."""
    names = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
    given = [one for name in names for one in (name, name.lower()) if environ.get(one)]
    if not given or not hosts:
        return []
    text = f"{given[0]} is set, and the gateway connects to {', '.join(hosts)} directly"
    advice = "let this machine reach them, or name a reachable base_url"
    return [Finding("outgoing proxy", "warn", text, advice)]
