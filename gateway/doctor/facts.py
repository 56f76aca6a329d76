"""Reads what the judgements need: from Redis, a certificate, a gateway. This is an edge."""

import asyncio
import contextlib
import http.client
import json
import resource
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from redis.exceptions import RedisError
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from gateway.doctor.findings import RedisFacts, StreamFacts, least_offset_s
from router.redis.client import redis_client

TIMEOUT_S = 10.0
STREAM_TIMEOUT_S = 120.0
NUM_ROUND_TRIPS = 5
DAY_S = 86_400.0
MAX_DATE_AGE_S = 2.0  # a Date header is rounded down to a second, and made once a second
ASK = "Write 100 words about clocks."
MAX_STREAM_TOKENS = 400


class NoFactError(Exception):
    """Something could not be read; the message says why."""


async def redis_facts(url: str) -> RedisFacts:
    """Asks a Redis about itself; raises `NoFactError` if it does not answer."""
    client = redis_client(url, timeout_s=TIMEOUT_S)
    try:
        info: dict[str, Any] = await client.info()
        best_s, offset_s = TIMEOUT_S, 0.0
        for _ in range(NUM_ROUND_TRIPS):
            begun_s = time.perf_counter()
            seconds, micros = await client.time()
            took_s = time.perf_counter() - begun_s
            if took_s < best_s:
                told_s, now_s = seconds + micros / 1e6, time.time()
                best_s = took_s
                offset_s = least_offset_s(told_s - now_s, told_s - now_s + took_s)
    except (RedisError, OSError, TimeoutError) as error:
        raise NoFactError(str(error)) from error
    finally:
        await client.aclose()
    return RedisFacts(info=info, round_trip_ms=best_s * 1e3, clock_offset_s=offset_s)


def own_descriptors() -> tuple[int, int]:
    """Returns what a gateway begun here would have: none open, and the hard limit of them."""
    return 0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def trusting(path: str | None) -> ssl.SSLContext:
    """Returns a client's context; with a path, one that trusts what that PEM file holds as well."""
    context = ssl.create_default_context()
    if path is not None:
        context.check_hostname = False  # it is asked for on loopback
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(path)
    return context


def file_days_left(cert_path: str, key_path: str) -> float:
    """Returns the days until the certificate of a pair of PEM files expires.

    It is read by a handshake in memory. Raises `NoFactError`, also if it has expired.
    """
    try:
        server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_side.load_cert_chain(cert_path, key_path, password="")
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = server_side.wrap_bio(to_server, to_client, server_side=True)
        client = trusting(cert_path).wrap_bio(to_client, to_server)
        for side in (client, server, client):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
        return _days_left(client.getpeercert() or {})
    except ssl.SSLCertVerificationError as error:
        raise NoFactError(error.verify_message) from error
    except (OSError, ValueError) as error:
        raise NoFactError(str(error)) from error


def served_days_left(url: str, context: ssl.SSLContext) -> float:
    """Returns the days until the certificate that a gateway shows expires.

    Raises `NoFactError` if it is not trusted, or nobody answers.
    """
    parts = urlsplit(url)
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=TIMEOUT_S, context=context
    )
    try:
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        return _days_left(connection.sock.getpeercert() or {})
    except OSError as error:
        raise NoFactError(str(error)) from error
    finally:
        connection.close()


def _days_left(certificate: Mapping[str, Any]) -> float:
    return (ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time()) / DAY_S


def fetch(url: str, key: str | None, context: ssl.SSLContext) -> tuple[str, float | None]:
    """Gets a page of a gateway, and how far its clock is from ours; raises `NoFactError`."""
    request = urllib.request.Request(url, headers=_authorization(key))
    asked_s = time.time()
    try:
        with _open(request, context, TIMEOUT_S) as answer:
            page, date = answer.read().decode(errors="replace"), answer.headers.get("date")
    except urllib.error.HTTPError as error:
        with error:
            raise NoFactError(f"{url} answers {error.code}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NoFactError(f"{getattr(error, 'reason', None) or error}") from None
    if date is None:
        return page, None
    told_s = parsedate_to_datetime(date).timestamp()
    return page, least_offset_s(told_s - time.time(), told_s + MAX_DATE_AGE_S - asked_s)


def stream_facts(url: str, key: str, model: str, context: ssl.SSLContext) -> StreamFacts:
    """Streams one short answer over HTTP, and notes when events came; raises `NoFactError`."""
    asked = {"model": model, "input": ASK, "stream": True, "store": False}
    body = json.dumps(asked | {"max_output_tokens": MAX_STREAM_TOKENS}).encode()
    headers = _authorization(key) | {"content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/responses", body, headers)
    begun_s, first_s, last = time.monotonic(), None, b""
    try:
        with _open(request, context, STREAM_TIMEOUT_S) as answer:
            for line in answer:
                if not line.startswith(b"data:"):
                    continue
                last = line
                if first_s is None:
                    first_s = time.monotonic() - begun_s
    except urllib.error.HTTPError as error:
        with error:
            said = _refusal(error.read())
            raise NoFactError(f"a stream was refused with {error.code}{said}") from None
    except (OSError, http.client.HTTPException) as error:
        raise NoFactError(f"a stream broke off: {error}") from None
    if first_s is None:
        raise NoFactError("a stream held no event")
    if (fault := _fault_of_end(last)) is not None:
        raise NoFactError(fault)
    return StreamFacts(first_s=first_s, last_s=time.monotonic() - begun_s)


def _refusal(body: bytes) -> str:
    """Returns what an error's body says, to follow its status; a proxy's may say anything."""
    try:
        return f": {json.loads(body)['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return ""


def _fault_of_end(line: bytes) -> str | None:
    """Returns why an answer whose last event this is was not whole; None if it was."""
    try:
        event = json.loads(line.removeprefix(b"data:"))
        if event["type"] in ("response.completed", "response.incomplete"):
            return None
        if event["type"] == "response.failed":
            return f"a stream failed: {event['response']['error']['message']}"
    except (ValueError, KeyError, TypeError):
        pass
    return "a stream broke off before its answer was whole"


async def hold_socket(url: str, key: str, context: ssl.SSLContext, idle_s: float) -> None:
    """Opens the WebSocket, leaves it idle and asks whether it lives; raises `NoFactError`."""
    secure = url.startswith("https")
    try:
        async with connect(
            f"ws{url.removeprefix('http')}/v1/responses",
            additional_headers=_authorization(key),
            ssl=context if secure else None,
            proxy=None,
            open_timeout=TIMEOUT_S,
            ping_interval=None,  # only the gateway's own pings keep it
        ) as socket:
            await asyncio.sleep(idle_s)
            async with asyncio.timeout(TIMEOUT_S):
                await (await socket.ping())
    except (OSError, InvalidHandshake, ConnectionClosed) as error:
        raise NoFactError(str(error)) from error


def _authorization(key: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def _open(request: urllib.request.Request, context: ssl.SSLContext, timeout_s: float) -> Any:
    """Opens it without the environment's proxies: what is checked is the gateway's address."""
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    return opener.open(request, timeout=timeout_s)
