"""Sockets cut at random points of turns with tools: none is lost, doubled or paid for twice.

Both engines and every strategy, with clients that send their create again unchanged (by hand, and
with openai-python), as Codex, with our SDK, and with Codex itself where it is installed; then the
same on two gateways in turn, and with gateways that are killed. At the end a mix of which one in
fifty never comes back.
"""

import asyncio
import json
import os
import random
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import websockets

from router.strategies.table import STRATEGIES
from tests.accept.connections import KEY
from tests.accept.cut_turns import Style, Turn
from tests.e2e.codex_command import CODEX, EXEC_CONFIG, run_codex
from tests.e2e.cutting_proxy import CuttingProxy
from tests.e2e.gateway_process import (
    CONFIG,
    GatewayProcess,
    redis_server,
    wait_until_at_rest,
)
from tests.e2e.returning_client import WEATHER

LIMIT_S = 3_000
SEED = int(os.environ.get("LANEWISE_SEED", "41340"))
NUM_CUTS = int(os.environ.get("LANEWISE_CUTS", "200"))
NUM_KILLS = int(os.environ.get("LANEWISE_KILLS", "50"))
AT_ONCE = 4
WAIT_S = 0.1  # from a create that comes back to its first event, in 95 of 100
STYLES: tuple[Style, ...] = ("unchanged", "openai", "codex", "ours")
ASKS = (
    "Call the get_weather function for Lisbon, then tell a story of 200 words about it.",
    "Tell a story of a lighthouse in 300 words.",
    "Prove that the halting problem is undecidable.",
)
# As agents ask: a context that is longer than the answer.
TALE = "The sea was calm, and nobody spoke. " * 150 + "Write a guide to sorting of 600 tokens."


def main() -> bool:
    """Plays all of it; prints what went wrong."""
    print(f"seed {SEED}")
    with (
        tempfile.TemporaryDirectory(prefix="lw-rejoin-") as name,
        redis_server(Path(name)) as redis_url,
    ):
        folder = Path(name)
        (folder / "gateway.toml").write_text(CONFIG)
        return asyncio.run(_all(folder, redis_url))


async def _all(folder: Path, redis_url: str) -> bool:
    chance = random.Random(SEED)
    gateways = [_gateway(folder, redis_url) for _ in range(2)]
    try:
        for each in gateways:
            await asyncio.to_thread(each.wait_until_ready)
        held = [
            await _play(gateways[:1], chance, "one gateway"),
            await _play(gateways, chance, "two gateways in turn"),
            await _codex(folder, gateways[0], chance),
            await _killed(folder, redis_url, gateways[0], chance),
            await _never_back(gateways[0], chance),
        ]
        for each in gateways:
            await asyncio.to_thread(wait_until_at_rest, each)
            if "Traceback" in each.log:
                print(each.log[-3_000:])
                held.append(False)
        return all(held)
    finally:
        for each in gateways:
            each.stop()


def _gateway(folder: Path, redis_url: str) -> GatewayProcess:
    config = str(folder / "gateway.toml")
    return GatewayProcess(folder, "--config", config, "--redis", redis_url)


def _turns(chance: random.Random, name: str) -> Iterator[Turn]:
    """Yields turns in every style, on both engines and in every strategy, without an end."""
    places = [("lanewise-fast", {}), ("lanewise-deep", {})]
    places += [("auto", {"route": "parallel", "strategy": each}) for each in STRATEGIES]
    number = 0
    while True:
        for model, metadata in places:
            for style in STYLES:
                number += 1
                body: dict[str, Any] = {
                    "model": model,
                    "input": chance.choice(ASKS),
                    "store": False,
                    "tools": [WEATHER],
                    "metadata": {**metadata, "ticket": str(number)},
                    "reasoning": {"effort": "low", "summary": "auto"},
                }
                yield Turn(style, f"{name}-{number}", body)


async def _play(gateways: list[GatewayProcess], chance: random.Random, title: str) -> bool:
    """Cuts turns until there were enough cuts; checks each, and the books."""
    before = sum(each.metrics().total("lanewise_requests_total") for each in gateways)
    played: list[Turn] = []

    def limit() -> int | None:
        return chance.randint(300, 40_000) if chance.random() < 0.8 else None

    ports = [each.port for each in gateways]
    turns = _turns(chance, title.replace(" ", "-"))
    async with CuttingProxy.running(ports, limit) as proxy:

        async def play_on() -> None:
            while sum(turn.num_cuts for turn in played) < NUM_CUTS:
                turn = next(turns)
                played.append(turn)
                await turn.play(proxy.port)

        await asyncio.gather(*(play_on() for _ in range(AT_ONCE)))
    for each in gateways:
        await asyncio.to_thread(wait_until_at_rest, each)
    after = sum(each.metrics().total("lanewise_requests_total") for each in gateways)
    num_ids = len({response for turn in played for response in turn.ids})
    faults = [fault for turn in played for fault in turn.faults]
    if after - before != num_ids:
        faults.append(f"{after - before:.0f} tasks ran, and clients saw {num_ids} responses")
    waits_ms = sorted(wait * 1e3 for turn in played for wait in turn.waits_s)
    late_ms = waits_ms[int(len(waits_ms) * 0.95)]
    print(
        f"{title}: {len(played)} turns, {sum(turn.num_cuts for turn in played)} cuts, "
        f"{len(faults)} faults; from the create to the first event "
        f"{statistics.median(waits_ms):.0f} ms, in 95 of 100 at most {late_ms:.0f} ms"
    )
    print("\n".join(faults[:20]), end="\n" if faults else "")
    return not faults and late_ms <= WAIT_S * 1e3


async def _codex(folder: Path, gateway: GatewayProcess, chance: random.Random) -> bool:
    """Runs the real Codex through the proxy: a command runs once, and the answer comes once."""
    if not CODEX.exists():
        print("Codex: not installed, left out")
        return True
    faults: list[str] = []
    num_cuts = 0
    for number in range(10):
        made, cuts = await _one_codex(folder / f"codex-{number}", gateway, chance)
        faults, num_cuts = faults + made, num_cuts + cuts
    print(f"Codex: 10 turns, {num_cuts} cuts, {len(faults)} faults")
    print("\n".join(faults), end="\n" if faults else "")
    return not faults


async def _one_codex(
    folder: Path, gateway: GatewayProcess, chance: random.Random
) -> tuple[list[str], int]:
    work = folder / "work"
    limits = [chance.randint(20_000, 90_000) for _ in range(3)]
    async with CuttingProxy.running(
        [gateway.port], lambda: limits.pop() if limits else None
    ) as proxy:
        config = EXEC_CONFIG.replace("stream_max_retries = 1", "stream_max_retries = 5").format(
            model="lanewise-fast",
            base_url=f"http://127.0.0.1:{proxy.port}/v1",
            websockets="true",
        )
        prompt = "Run `echo ran >> runs.txt` in the shell, then tell a story of 300 words."
        told = await asyncio.to_thread(
            run_codex, folder / "home", work, config, KEY, "--json", prompt
        )
        num_cut = proxy.num_cut
    faults: list[str] = []
    if told.returncode:
        faults.append(f"{folder.name}: {told.stdout[-500:]} {told.stderr[-300:]}")
    events = [json.loads(line) for line in told.stdout.splitlines() if line.startswith("{")]
    items = [e["item"] for e in events if e["type"] == "item.completed"]
    texts = [item["text"] for item in items if item["type"] == "agent_message"]
    if not texts or len(set(texts)) != len(texts):
        faults.append(f"{folder.name}: {len(texts)} messages, {len(set(texts))} of them different")
    runs = work / "runs.txt"
    if runs.exists() and runs.read_text() != "ran\n":
        faults.append(f"{folder.name}: the command ran {runs.read_text().count('ran')} times")
    return faults, num_cut


async def _killed(
    folder: Path, redis_url: str, other: GatewayProcess, chance: random.Random
) -> bool:
    """Kills gateways in mid-answer: the turn begins anew on the other one, whole."""
    faults: list[str] = []
    for number in range(NUM_KILLS):
        first = _gateway(folder, redis_url)
        await asyncio.to_thread(first.wait_until_ready)
        ports = [first.port, other.port]
        turn = Turn(
            chance.choice(("unchanged", "codex")),
            f"killed-{number}",
            {"model": chance.choice(("lanewise-fast", "lanewise-deep")), "input": ASKS[1]}
            | {"store": False, "metadata": {"ticket": f"k{number}"}},
        )
        async with CuttingProxy.running(ports, lambda: None) as proxy:
            playing = asyncio.create_task(turn.play(proxy.port))
            await asyncio.sleep(chance.uniform(0.02, 1.5))
            first.process.kill()
            await playing
        first.process.wait()
        faults += turn.faults
    print(f"killed: {NUM_KILLS} gateways, {len(faults)} faults")
    print("\n".join(faults[:20]), end="\n" if faults else "")
    return not faults


async def _never_back(gateway: GatewayProcess, chance: random.Random) -> bool:
    """One client in fifty is lost for ever: what it costs is under 1 % of all tokens."""
    before = gateway.metrics()
    headers = {"authorization": f"Bearer {KEY}"}
    places = asyncio.Semaphore(8)

    async def ask(number: int) -> None:
        body = {"type": "response.create", "model": "lanewise-fast", "input": TALE, "store": False}
        async with (
            places,
            websockets.connect(
                gateway.socket_url, additional_headers=headers, compression=None, max_size=None
            ) as socket,
        ):
            await socket.send(json.dumps(body | {"metadata": {"n": str(number)}}))
            num_events = chance.randint(3, 40)
            while json.loads(await socket.recv())["type"] != "response.completed":
                num_events -= 1
                if number % 50 == 0 and not num_events:
                    socket.transport.abort()
                    return

    await asyncio.gather(*map(ask, range(300)))
    await asyncio.to_thread(wait_until_at_rest, gateway)
    after = gateway.metrics()

    def spent(name: str) -> float:
        return after.total(name) - before.total(name)

    grace = spent("lanewise_rejoin_grace_tokens_total")
    share = grace / spent("lanewise_ratelimit_settled_tokens_total")
    left = after.total("lanewise_ratelimit_leases")
    print(f"never back: {share:.2%} of tokens were spent for nobody, {left:.0f} reservations left")
    return share < 0.01 and not left
