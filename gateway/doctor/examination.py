"""Goes through a set-up, check by check, and yields what each found. This is an edge."""

import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from backends.upstream.backend import UpstreamBackendConfig
from gateway.config.config import Config, admin_keys
from gateway.config.sections import admin_address, masked_url
from gateway.doctor.engines import ask_engine
from gateway.doctor.facts import (
    NoFactError,
    fetch,
    file_days_left,
    hold_socket,
    own_descriptors,
    redis_facts,
    served_days_left,
    stream_facts,
    trusting,
)
from gateway.doctor.findings import (
    Finding,
    certificate_finding,
    clock_finding,
    descriptors_finding,
    engine_finding,
    proxy_findings,
    redis_findings,
    stream_finding,
)

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """Says what is to be examined, and how."""

    config: Config
    url: str  # where clients reach the gateway
    admin_url: str
    key: str
    trusts: str | None = None  # a PEM file; None: only what the system trusts
    model: str = "auto"  # that streams an answer
    asks_engines: bool = True
    idle_s: float = 0.0


def examined(config: Config, url: str | None, key: str | None) -> Examined:
    """Completes what was not said from the configuration."""
    server = config.server
    scheme = "http" if server.tls_cert_path is None else "https"
    local = f"{scheme}://{_reachable(server.host)}:{server.port}"
    separate = admin_address(server)
    admin_url = f"{scheme}://{_reachable(separate.host)}:{separate.port}" if separate else local
    keys = [key for tenant in config.tenants for key in tenant.keys]
    return Examined(
        config=config,
        url=url or local,
        admin_url=admin_url,
        key=key or (keys[0] if keys else ""),
        trusts=server.tls_cert_path if url is None else None,
    )


def _reachable(host: str) -> str:
    """Returns an address of this machine for one that a server listens on."""
    any_address = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}
    return any_address.get(host, f"[{host}]" if ":" in host else host)


async def examine(what: Examined) -> AsyncIterator[Finding]:
    """Yields the findings in the order in which a request meets what they are of."""
    try:
        context = trusting(what.trusts)
    except OSError as error:
        yield Finding("certificate", "fail", f"{what.trusts}: {error}", "is it a PEM file?")
        return
    for finding in _certificates(what, context):
        yield finding
    async for finding in _gateway(what, context):
        yield finding
    async for finding in _redis(what):
        yield finding
    if what.asks_engines:
        for backend in what.config.backends:
            yield engine_finding(await ask_engine(backend))
    upstreams = [b.options for b in what.config.backends if isinstance(b, UpstreamBackendConfig)]
    hosts = {urlsplit(options.base_url).hostname or "" for options in upstreams}
    for finding in proxy_findings(os.environ, sorted(hosts - {*_LOOPBACK})):
        yield finding


def _certificates(what: Examined, context: ssl.SSLContext) -> Iterator[Finding]:
    server = what.config.server
    if server.tls_cert_path is not None and server.tls_key_path is not None:
        try:
            days_left = file_days_left(server.tls_cert_path, server.tls_key_path)
            yield certificate_finding(server.tls_cert_path, days_left)
        except NoFactError as error:
            whose = f"certificate of {server.tls_cert_path}"
            yield Finding(whose, "fail", str(error), "renew it, then SIGHUP")
    if what.url.startswith("https"):
        try:
            yield certificate_finding(what.url, served_days_left(what.url, context))
        except NoFactError as error:
            yield Finding(f"certificate of {what.url}", "fail", str(error), "do clients trust it?")


async def _gateway(what: Examined, context: ssl.SSLContext) -> AsyncIterator[Finding]:
    """Asks the gateway as a client does, and what is between."""
    try:
        _, offset_s = fetch(f"{what.url}/healthz", None, context)
    except NoFactError as error:
        advice = "start it: lanewise serve --config FILE; for another address: --url"
        yield Finding("gateway", "fail", f"{what.url}: {error}", advice)
        yield descriptors_finding(*own_descriptors())
        return
    yield Finding("gateway", "ok", f"answers at {what.url}")
    if offset_s is not None:
        yield clock_finding("the gateway", offset_s)
    try:
        fetch(f"{what.url}/v1/models", what.key, context)
    except NoFactError as error:
        yield Finding("key", "fail", str(error), "give one with --key, or LANEWISE_API_KEY")
        return
    yield Finding("key", "ok", "the gateway takes it")
    for finding in _inside(what, context):
        yield finding
    async for finding in _way(what, context):
        yield finding


def _inside(what: Examined, context: ssl.SSLContext) -> Iterator[Finding]:
    """Reads what the gateway says of itself at its admin address."""
    try:
        page, _ = fetch(f"{what.admin_url}/metrics", None, context)
    except NoFactError as error:
        yield Finding("metrics", "warn", str(error), "run this where the gateway runs")
        return
    names = ("process_open_fds", "process_max_fds")
    values = {
        sample.name: int(sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name in names
    }
    if values.keys() == {*names}:
        yield descriptors_finding(*(values[name] for name in names))
    keys = admin_keys(what.config)
    if not keys:
        return
    with contextlib.suppress(NoFactError):
        health, _ = fetch(f"{what.admin_url}/admin/health", keys[0].key, context)
        if not msgspec.json.decode(health).get("pools_reachable", True):
            text = "the gateway goes on without Redis, with limits of its own"
            yield Finding("pools", "fail", text, "see the lines on Redis")


async def _way(what: Examined, context: ssl.SSLContext) -> AsyncIterator[Finding]:
    """Looks for proxies that hold streams back, refuse sockets, or cut silent ones."""
    if what.asks_engines:
        try:
            yield stream_finding(stream_facts(what.url, what.key, what.model, context))
        except NoFactError as error:
            yield Finding("streaming", "fail", str(error), "see the lines on engines")
    idle = f" {what.idle_s:g} s of silence" if what.idle_s else ""
    try:
        await hold_socket(what.url, what.key, context, what.idle_s)
    except NoFactError as error:
        advice = "a proxy must pass Upgrade, and wait longer than 20 s (proxy_read_timeout)"
        yield Finding("websocket", "fail", f"{error}", advice)
        return
    text = f"outlives{idle}" if idle else "opens; --idle-s 70 tries whether it outlives silence"
    yield Finding("websocket", "ok", text)


async def _redis(what: Examined) -> AsyncIterator[Finding]:
    url = what.config.redis.url
    if url is None:
        text = "embedded: one process, and it forgets everything when it ends"
        yield Finding("redis", "warn", text, "name one in redis.url for more than a trial")
        return
    try:
        facts = await redis_facts(url)
    except NoFactError as error:
        advice = "does it run, and may this machine reach it?"
        yield Finding("redis", "fail", f"{masked_url(url)}: {error}", advice)
        return
    for finding in redis_findings(facts, what.config.redis):
        yield finding
