"""Answers that break off or stall at any token of any strategy: they go on in time, and end whole.

Both engines are a `StrictUpstream` on loopback that takes an answer's first words. Each part of
each strategy breaks at every token of it and stalls at some, over SSE; a few do over a socket, chat
completions, the Messages API, JSON and in background.
"""

import asyncio
import contextlib
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from websockets.asyncio.client import connect

from tests.accept.connections import KEY
from tests.e2e.gateway_process import GatewayProcess
from tests.e2e.strict_runs import RUNS, StrictRun, num_tokens
from tests.e2e.strict_upstream import TEXT, StrictUpstream

TOKEN_S = 0.02
BROKEN_S = 2.0  # from the last word before a break to the next
STALLED_S = 3.0 + 2.0  # from the last word before a stall to the next
# Silent before its first word is no stall: these, and an engine alone, have limits of seconds and
# minutes (docs/strategies.md).
WAITED_FOR = ("deep:answer", "deep:judge", "deep:subtask", "deep:advice", "deep:verdict")
AT_ONCE = 12
SEED = 1122


class Heard(NamedTuple):
    """Says what a client heard of an answer."""

    text: str
    silent_s: float  # at most, from its asking to its end


class Case(NamedTuple):
    """Is one ask: a run, which of its parts fails, how and where, and over what it is asked."""

    name: str
    part: str
    kind: str
    place: int
    wire: str

    @property
    def run(self) -> StrictRun:
        return RUNS[self.name]

    @property
    def ask(self) -> str:
        fault = f"{self.part}:{self.kind}:{self.place}"
        return self.run.ask(f"{self.name} over {self.wire}", fault)

    @property
    def limit_s(self) -> float:
        return STALLED_S if self.kind == "stall" else BROKEN_S


def main() -> bool:
    """Runs all cases; prints what went wrong."""
    print(f"seed {SEED}")
    with (
        StrictUpstream.running(TOKEN_S) as upstream,
        tempfile.TemporaryDirectory(prefix="lw-continued-") as name,
    ):
        return asyncio.run(_measure(Path(name), upstream, list(_cases(random.Random(SEED)))))


def _cases(chance: random.Random) -> Any:
    for name, run in RUNS.items():
        for part in run.parts:
            size = num_tokens(part)
            places = range(0 if _begins_again(name, part) else 1, size + 1)
            for place in places:
                yield Case(name, part, "break", place, "sse")
            for place in {places[0], 1, size // 2, size}:
                if place or not (name == "fast" or part in WAITED_FOR):
                    yield Case(name, part, "stall", place, "sse")
            for wire, kind in itertools.product(WIRES, ("break", "stall")):
                yield Case(name, part, kind, chance.randint(1, size), wire)


def _begins_again(name: str, part: str) -> bool:
    """Returns whether an answer is whole though a part of it fails before its first word."""
    return name != "auto" and (name, part) != ("hedge", "deep:answer")


async def _measure(folder: Path, upstream: StrictUpstream, cases: list[Case]) -> bool:
    config, policy = folder / "gateway.toml", folder / "policy.toml"
    # Words of the faults may count as of security, whose answers nobody else goes on with.
    policy.write_text("security_goes_deep = false\n")
    config.write_text(f'policy_path = "{policy}"\n' + upstream.config("max_num_seqs = 1000\n"))
    process = GatewayProcess(folder, "--config", str(config))
    try:
        await asyncio.to_thread(process.wait_until_ready)
        places = asyncio.Semaphore(AT_ONCE)
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(
            base_url=process.base_url, headers=headers, timeout=60
        ) as client:

            async def check(case: Case) -> str:
                async with places:
                    heard = await WIRES[case.wire](process, client, case)
                which = f"{case.ask} ({case.wire})"
                if heard.text != TEXT * case.run.num_answers:
                    return f"{which}: not whole: {heard.text!r}"
                is_late = heard.silent_s > case.limit_s
                return f"{which}: silent for {heard.silent_s:.1f} s" if is_late else ""

            faults = list(filter(None, await asyncio.gather(*map(check, cases))))
        print("\n".join(faults) or f"{len(cases)} answers went on and were whole")
        return not faults and not upstream.refusals
    finally:
        await asyncio.to_thread(process.stop)


def _silence(times: list[float]) -> float:
    return max(after - before for before, after in itertools.pairwise(times))


def _body(case: Case, **more: Any) -> dict[str, Any]:
    return {"model": "auto", "input": case.ask, "metadata": case.run.metadata, **more}


def _output_text(response: dict[str, Any]) -> str:
    items = [item for item in response.get("output", ()) if item["type"] == "message"]
    return "".join(part["text"] for item in items for part in item["content"])


async def _events(
    client: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    async with client.stream("POST", path, json=body) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                yield json.loads(line[6:])


async def _over_sse(_: GatewayProcess, client: httpx.AsyncClient, case: Case) -> Heard:
    times, last = [time.monotonic()], dict[str, Any]()
    async for last in _events(client, "/responses", _body(case, stream=True)):
        if last["type"].endswith(".delta"):
            times.append(time.monotonic())
    return Heard(_output_text(last["response"]), _silence([*times, time.monotonic()]))


async def _over_socket(process: GatewayProcess, _: httpx.AsyncClient, case: Case) -> Heard:
    headers = {"authorization": f"Bearer {KEY}"}
    async with connect(process.socket_url, additional_headers=headers) as socket:
        times = [time.monotonic()]
        await socket.send(json.dumps({"type": "response.create", **_body(case)}))
        async for message in socket:
            event = json.loads(message)
            if event["type"].endswith(".delta"):
                times.append(time.monotonic())
            if event["type"] in ("response.completed", "response.failed", "error"):
                break
    return Heard(_output_text(event.get("response", {})), _silence([*times, time.monotonic()]))


async def _over_chat(_: GatewayProcess, client: httpx.AsyncClient, case: Case) -> Heard:
    body = _body(case, stream=True, messages=[{"role": "user", "content": case.ask}])
    del body["input"]
    times, texts = [time.monotonic()], []
    async for chunk in _events(client, "/chat/completions", body):
        times.append(time.monotonic())
        texts += [choice["delta"].get("content") or "" for choice in chunk.get("choices", ())]
    return Heard("".join(texts), _silence(times))


async def _over_messages(_: GatewayProcess, client: httpx.AsyncClient, case: Case) -> Heard:
    body = _body(case, stream=True, messages=[{"role": "user", "content": case.ask}])
    del body["input"]
    times, texts = [time.monotonic()], []
    async for event in _events(client, "/messages", body | {"max_tokens": 1_000}):
        if event["type"] == "content_block_delta":
            times.append(time.monotonic())
            texts.append(event["delta"].get("text", ""))
    return Heard("".join(texts), _silence([*times, time.monotonic()]))


async def _as_json(_: GatewayProcess, client: httpx.AsyncClient, case: Case) -> Heard:
    response = (await client.post("/responses", json=_body(case))).json()
    return Heard(_output_text(response), 0.0)


async def _in_background(_: GatewayProcess, client: httpx.AsyncClient, case: Case) -> Heard:
    response = (await client.post("/responses", json=_body(case, background=True))).json()
    until_s = time.monotonic() + 30
    while response["status"] in ("queued", "in_progress") and time.monotonic() < until_s:
        await asyncio.sleep(0.1)
        with contextlib.suppress(httpx.TransportError):
            response = (await client.get(f"/responses/{response['id']}")).json()
    return Heard(_output_text(response), 0.0)


WIRES = {
    "sse": _over_sse,
    "socket": _over_socket,
    "chat": _over_chat,
    "messages": _over_messages,
    "json": _as_json,
    "background": _in_background,
}


if __name__ == "__main__":
    sys.exit(not main())
