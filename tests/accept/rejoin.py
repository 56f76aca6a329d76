"""Sockets cut at random points of turns with tools: none is lost, doubled or paid for twice.

Both engines and every strategy, with clients that send their create again unchanged (by hand, with
openai-python and with openai-node), as Codex, with our SDK, and with Codex itself where it is
installed; then the same on two gateways in turn, and with gateways that are killed. The ledger says
what was charged. At the end a mix of which one in fifty never comes back.
"""

import asyncio
import contextlib
import csv
import io
import json
import os
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import websockets

from gateway.cli.main import main as lanewise
from router.strategies.table import STRATEGIES
from tests.accept.connections import KEY
from tests.accept.cut_turns import Style, Turn
from tests.accept.node_sockets import NodeSockets
from tests.e2e.codex_command import CODEX, EXEC_CONFIG, run_codex
from tests.e2e.cutting_proxy import CuttingProxy
from tests.e2e.gateway_process import (
    CONFIG,
    GatewayProcess,
    redis_server,
    wait_until_at_rest,
)
from tests.e2e.returning_client import WEATHER

LIMIT_S = 900
SEED = int(os.environ.get("LANEWISE_SEED", "41340"))
NUM_CUTS = int(os.environ.get("LANEWISE_CUTS", "200"))
NUM_KILLS = int(os.environ.get("LANEWISE_KILLS", "50"))
AT_ONCE = 4
KILLED_AT_ONCE = 2
LEDGER_S = 1.0  # for the last entries to be in Redis
WAIT_S = 0.1  # from a create that comes back to its first event, in 95 of 100
STYLES: tuple[Style, ...] = ("unchanged", "openai", "node", "codex", "ours")
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
    ledger = Ledger(folder / "usage.csv", redis_url)
    try:
        for each in gateways:
            await asyncio.to_thread(each.wait_until_ready)
        async with NodeSockets.running() as node:
            held = [
                await _play(gateways[:1], node, ledger, chance, "one gateway"),
                await _play(gateways, node, ledger, chance, "two gateways in turn"),
                await _codex(folder, gateways[0], chance),
                await _killed(folder, redis_url, gateways[0], node, ledger, chance),
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


class Ledger:
    """Reads what was charged, from the usage ledger."""

    def __init__(self, path: Path, redis_url: str) -> None:
        self._redis_url = redis_url
        self._path = path

    def output_tokens(self) -> dict[str, int]:
        """Returns what each response was charged, so far; no response that said nothing."""
        time.sleep(LEDGER_S)
        command = ["usage", "export", "--out", str(self._path), "--redis", self._redis_url]
        with contextlib.redirect_stdout(io.StringIO()):
            assert lanewise(command) == 0
        charged: dict[str, int] = defaultdict(int)
        with self._path.open(newline="") as file:
            for row in csv.DictReader(file):
                charged[row["task_id"]] += int(row["output_tokens"])
        return {task: num_tokens for task, num_tokens in charged.items() if num_tokens}


def _gateway(folder: Path, redis_url: str) -> GatewayProcess:
    config = str(folder / "gateway.toml")
    return GatewayProcess(folder, "--config", config, "--redis", redis_url)


def _turns(chance: random.Random, node: NodeSockets, name: str) -> Iterator[Turn]:
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
                yield Turn(style, f"{name}-{number}", body, node)


async def _play(
    gateways: list[GatewayProcess],
    node: NodeSockets,
    ledger: Ledger,
    chance: random.Random,
    title: str,
) -> bool:
    """Cuts turns until there were enough cuts; checks each, and the books."""
    began_s = time.monotonic()
    before = await asyncio.to_thread(ledger.output_tokens)
    played: list[Turn] = []

    def limit() -> int | None:
        return chance.randint(300, 40_000) if chance.random() < 0.8 else None

    ports = [each.port for each in gateways]
    turns = _turns(chance, node, title.replace(" ", "-"))
    async with CuttingProxy.running(ports, limit) as proxy:

        async def play_on() -> None:
            while sum(turn.num_cuts for turn in played) < NUM_CUTS:
                turn = next(turns)
                played.append(turn)
                await turn.play(proxy.port)

        await asyncio.gather(*(play_on() for _ in range(AT_ONCE)))
    for each in gateways:
        await asyncio.to_thread(wait_until_at_rest, each)
    charged = await asyncio.to_thread(ledger.output_tokens)
    unseen = charged.keys() - before.keys() - {name for turn in played for name in turn.ids}
    faults = [fault for turn in played for fault in turn.faults]
    faults += [f"{name} was charged, and no client saw it" for name in unseen]
    waits_ms = sorted(wait * 1e3 for turn in played for wait in turn.waits_s)
    late_ms = waits_ms[int(len(waits_ms) * 0.95)]
    print(
        f"{title}: {len(played)} turns, {sum(turn.num_cuts for turn in played)} cuts, "
        f"{len(faults)} faults; from the create to the first event "
        f"{statistics.median(waits_ms):.0f} ms, in 95 of 100 at most {late_ms:.0f} ms; "
        f"{time.monotonic() - began_s:.0f} s"
    )
    print("\n".join(faults[:20]), end="\n" if faults else "", flush=True)
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
    folder: Path,
    redis_url: str,
    other: GatewayProcess,
    node: NodeSockets,
    ledger: Ledger,
    chance: random.Random,
) -> bool:
    """Kills gateways in mid-answer: the turn begins anew on the other one, whole."""
    began_s = time.monotonic()
    turns = [
        Turn(
            STYLES[number % len(STYLES)],
            f"killed-{number}",
            {"model": chance.choice(("lanewise-fast", "lanewise-deep")), "input": ASKS[1]}
            | {"store": False, "metadata": {"ticket": f"k{number}"}},
            node,
            may_begin_anew=True,
        )
        for number in range(NUM_KILLS)
    ]
    waiting = list(turns)

    async def play_on() -> None:
        while waiting:
            first = _gateway(folder, redis_url)
            await _kill_under(waiting.pop(), first, other, chance.uniform(0.02, 1.5))

    await asyncio.gather(*(play_on() for _ in range(KILLED_AT_ONCE)))
    charged = await asyncio.to_thread(ledger.output_tokens)
    faults = [fault for turn in turns for fault in turn.faults]
    faults += [
        f"{turn.name} ({turn.style}): more was charged than it was answered"
        for turn in turns
        if len(turn.ids & charged.keys()) > len(turn.ended)
    ]
    print(
        f"killed: {NUM_KILLS} gateways, {sum(turn.num_anew for turn in turns)} answers begun anew, "
        f"{len(faults)} faults; {time.monotonic() - began_s:.0f} s"
    )
    print("\n".join(faults[:20]), end="\n" if faults else "", flush=True)
    return not faults


async def _kill_under(
    turn: Turn, first: GatewayProcess, other: GatewayProcess, after_s: float
) -> None:
    """Plays a turn whose first gateway is killed."""
    try:
        await asyncio.to_thread(first.wait_until_ready)
        async with CuttingProxy.running([first.port, other.port], lambda: None) as proxy:
            playing = asyncio.create_task(turn.play(proxy.port))
            await asyncio.sleep(after_s)
            first.process.kill()
            await playing
    finally:
        first.process.kill()
        await asyncio.to_thread(first.process.wait)


async def _never_back(gateway: GatewayProcess, chance: random.Random) -> bool:
    """Loses one client in fifty for ever: it may cost less than 1 % of all tokens.

    A socket is lost at any point of its answer, as likely early as late.
    """
    began_s = time.monotonic()
    before = gateway.metrics()
    places = asyncio.Semaphore(8)
    num_chars = await _asked(gateway, 0, None)

    async def ask(number: int) -> None:
        lose_after = chance.random() * num_chars if number % 50 == 0 else None
        async with places:
            await _asked(gateway, number, lose_after)

    await asyncio.gather(*map(ask, range(1, 301)))
    await asyncio.to_thread(wait_until_at_rest, gateway)
    after = gateway.metrics()

    def spent(name: str) -> float:
        return after.total(name) - before.total(name)

    share = spent("lanewise_rejoin_grace_tokens_total") / spent(
        "lanewise_ratelimit_settled_tokens_total"
    )
    left = after.total("lanewise_ratelimit_leases")
    print(
        f"never back: {share:.2%} of tokens were spent for nobody, {left:.0f} reservations left; "
        f"{time.monotonic() - began_s:.0f} s"
    )
    return share < 0.01 and not left


async def _asked(gateway: GatewayProcess, number: int, lose_after: float | None) -> int:
    """Asks, and loses the socket after so much text; returns how much came."""
    body = {"type": "response.create", "model": "lanewise-fast", "input": TALE, "store": False}
    headers = {"authorization": f"Bearer {KEY}"}
    num_chars = 0
    async with websockets.connect(
        gateway.socket_url, additional_headers=headers, compression=None, max_size=None
    ) as socket:
        await socket.send(json.dumps(body | {"metadata": {"n": str(number)}}))
        while (event := json.loads(await socket.recv()))["type"] != "response.completed":
            num_chars += len(event.get("delta", ""))
            if lose_after is not None and num_chars >= lose_after:
                socket.transport.abort()
                break
    return num_chars
