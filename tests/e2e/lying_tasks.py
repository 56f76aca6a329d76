"""Offers a gateway on an upstream that lies, and says what a task on it may cost."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from backends.bounds import MARKER_TOKENS
from backends.upstream.answer.reported_usage import SPARE_INPUT_TOKENS
from tests.e2e.gateway_process import GatewayProcess, served_beside
from tests.e2e.lying_upstream import LIES, LyingUpstream

PROTOCOLS = ("chat", "responses", "responses-ws")
LIMITS = (16, 200, 2_000, None)  # what clients ask for, in tokens
ENGINE_LIMIT = 4_096  # the upstream's, where a client names none
KEY = "sk-a-tenant-of-a-liar"
TIMEOUT_S = 120.0
# They go on after their words, and say no more.
WORDLESS = [lie for lie in LIES if lie.endswith(("for ever", "without end"))]
SILENT = "silent amid its words"  # how such a task may fail

# As many tokens as 1,000 tasks can cost by their bounds, and not one task at 10**15.
_CONFIG = f"""
[[tenants]]
id = "told"
keys = ["{KEY}"]
limits.fast = {{ requests_per_min = 60000, tokens_per_min = 20000000, max_concurrent = 64 }}
"""
_BACKEND = """
[[backends]]
kind = "upstream"
name = "{protocol}"
[backends.options]
group = "fast"
model = "{protocol}"
upstream_model = "liar"
protocol = "{protocol}"
base_url = "{base_url}"
max_output_tokens = {limit}
slow_start_s = 0
max_num_seqs = 128
accepts_images = true
"""


class Asked(NamedTuple):
    """Is a task on one of the protocols."""

    lie: str
    protocol: str
    limit: int | None

    @property
    def most(self) -> int:
        """Returns the most that its answer can have, in tokens."""
        return min(self.limit or ENGINE_LIMIT, ENGINE_LIMIT)


class Told(NamedTuple):
    """Says what a client got for it."""

    asked: Asked
    status: int
    body: dict[str, Any]

    def complaints(self) -> Iterator[str]:
        """Yields each way in which it is beyond its bounds."""
        if self.asked.lie in WORDLESS and SILENT in json.dumps(self.body):
            return  # on a busy machine it is silent too long before it has sent too much
        if self.status != 200:
            yield f"refused: {self.status} {json.dumps(self.body)[:300]}"
            return
        usage, text = self.body["usage"], text_of(self.body)
        asked = self.asked
        num_output, num_input = usage["output_tokens"], usage["input_tokens"]
        num_bytes = len(json.dumps(self.body["output"]))
        if not 0 <= num_output <= min(asked.most, num_bytes + MARKER_TOKENS):
            yield f"{num_output} output tokens are charged for {num_bytes} bytes"
        if not 0 < num_input <= 400 + SPARE_INPUT_TOKENS:
            yield f"{num_input} input tokens are charged"
        if not 0 <= usage["input_tokens_details"]["cached_tokens"] <= num_input:
            yield "more is cached than was sent"
        if len(text.split()) > asked.most + asked.most // 8 + 4:
            yield f"{len(text.split())} words at a limit of {asked.most} tokens"
        if asked.lie == "none" and (text, num_output, num_input) != ("One, two, three.", 7, 30):
            yield f"an honest answer became {num_output}, {num_input}, {text!r}"


def text_of(body: dict[str, Any]) -> str:
    """Returns the words of a response."""
    messages = (item for item in body["output"] if item["type"] == "message")
    return "".join(part.get("text", "") for item in messages for part in item["content"])


def every_lie(num_tasks: int) -> list[Asked]:
    """Lies, protocols and limits in turn, each with each."""
    return [
        Asked(
            list(LIES)[number % len(LIES)],
            PROTOCOLS[number // len(LIES) % len(PROTOCOLS)],
            LIMITS[number // (len(LIES) * len(PROTOCOLS)) % len(LIMITS)],
        )
        for number in range(num_tasks)
    ]


@asynccontextmanager
async def lied_to(
    folder: Path, redis_url: str, *, of_backend: str = "", of_gateway: str = ""
) -> AsyncIterator[tuple[GatewayProcess, LyingUpstream]]:
    """Gives a gateway whose backends are one liar, over all three protocols; and that liar.

    `of_backend` and `of_gateway` are further lines of their configurations.
    """
    async with LyingUpstream.running() as liar:
        backends = [
            _BACKEND.format(protocol=protocol, base_url=liar.base_url, limit=ENGINE_LIMIT)
            + of_backend.format(protocol=protocol)
            for protocol in PROTOCOLS
        ]
        toml = _CONFIG + "".join(backends) + of_gateway
        async with served_beside(folder, toml, "--redis", redis_url) as gateway:
            yield gateway, liar


def client_of(gateway: GatewayProcess) -> httpx.AsyncClient:
    """Returns the tenant's client."""
    headers = {"authorization": f"Bearer {KEY}"}
    return httpx.AsyncClient(base_url=gateway.base_url, headers=headers, timeout=TIMEOUT_S)


async def ask_all(gateway: GatewayProcess, tasks: Sequence[Asked], at_once: int) -> list[Told]:
    """Asks them, so many at once."""
    gate = asyncio.Semaphore(at_once)

    async def ask(asked: Asked) -> Told:
        body: dict[str, Any] = {"model": asked.protocol, "input": f"Speak. lie={asked.lie}"}
        if asked.limit is not None:
            body["max_output_tokens"] = asked.limit
        async with gate:
            answer = await client.post("/responses", json={**body, "store": False})
        return Told(asked, answer.status_code, answer.json())

    async with client_of(gateway) as client:
        return await asyncio.gather(*map(ask, tasks))
