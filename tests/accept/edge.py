"""A gateway near its users, 20 and 80 ms from its engine: what a turn costs, and a minute cut.

The edge has a Redis of its own, a part of each limit, and the example's configuration
(`deploy/edge/edge.toml`). Turns go in turns to the edge and straight to the far engine, over the
same distance, on warm sockets. The edge's turn begins within 5 ms of the other, and it says itself
that it has begun, or refuses, sooner than the far side could. Then the link is silent for a minute:
every turn gets a clear end, no place stays taken, and the next turn after it is answered.
"""

import asyncio
import json
import re
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

import websockets

from tests.chaos.load import TERMINALS
from tests.e2e.gateway_process import GatewayProcess
from tests.integration.redis_fleet import Server, Wire, running

LIMIT_S = 400
EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "edge" / "edge.toml"
KEY, ENGINE_KEY = "sk-studio-of-the-edge", "sk-engine-of-the-edge"
ROUND_TRIPS_S = (0.020, 0.080)
NUM_TURNS = 60  # of each way
MOST_LATER_S = 0.005  # of the edge's first word, at the median
CUT_S, TURN_PAUSE_S = 60.0, 0.5
LONGEST_S = 15.0  # until a turn has an end: two pings without an answer, and a reconnect
BACK_S = 12.0  # the longest pause between two attempts, jittered, and an opening that was silent
PLACES = "lw1:{studio}:p:fast"
LEDGER = "lw1:{ledger}:entries"


def configuration(port: int) -> str:
    """The example with another address and other keys, and limits whose part is small."""
    text = EXAMPLE.read_text().replace("sk-studio-change-me", KEY)
    text = text.replace("sk-engine-change-me", ENGINE_KEY).replace(
        "127.0.0.1:9100", f"127.0.0.1:{port}"
    )
    text = re.sub(r"requests_per_min = \d+", "requests_per_min = 60000", text)
    return text.replace("max_concurrent = 32", "max_concurrent = 10")  # two of them are the edge's


def turn(num_tokens: int) -> str:
    """A request."""
    body = {
        "metadata": {"route": "fast"},
        "type": "response.create",
        "model": "auto",
        "input": "Count.",
        "store": False,
    }
    return json.dumps(
        body | {"max_output_tokens": num_tokens, "min_tokens": num_tokens, "ignore_eos": True}
    )


class Ended:
    """One turn: seconds to its first event, its first word and its end, and how it ended."""

    def __init__(self) -> None:
        self.first_s = self.word_s = self.end_s = float("inf")
        self.kind = self.id = ""


async def one(socket: websockets.ClientConnection, num_tokens: int = 8) -> Ended:
    """Takes a turn to its end."""
    ended, sent_s = Ended(), time.perf_counter()
    await socket.send(turn(num_tokens))
    while not ended.kind:
        event = json.loads(await asyncio.wait_for(socket.recv(), 2 * LONGEST_S))
        ended.end_s = time.perf_counter() - sent_s
        ended.first_s = min(ended.first_s, ended.end_s)
        if event["type"] == "response.output_text.delta":
            ended.word_s = min(ended.word_s, ended.end_s)
        elif event["type"] in TERMINALS:
            ended.kind, ended.id = event["type"], event["response"]["id"]
        elif event["type"] == "error":
            ended.kind = str(event["error"]["code"])
    return ended


def connect(port: int, key: str) -> websockets.connect:
    """A client's socket."""
    return websockets.connect(
        f"ws://127.0.0.1:{port}/v1/responses", additional_headers={"authorization": f"Bearer {key}"}
    )


async def beside(edge: GatewayProcess, wire: Wire, round_trip_s: float) -> bool:
    """What a turn costs over the edge, and straight."""
    wire.delay_s = round_trip_s
    ways: dict[str, list[Ended]] = {"edge": [], "straight": []}
    async with connect(edge.port, KEY) as near, connect(wire.port, ENGINE_KEY) as far:
        for number in range(NUM_TURNS + 5):
            for name, socket in (("edge", near), ("straight", far)):
                ended = await one(socket)
                assert ended.kind == "response.incomplete", f"{name}: {ended.kind}"
                if number >= 5:  # both are warm
                    ways[name].append(ended)
    words = {name: statistics.median(e.word_s for e in way) for name, way in ways.items()}
    firsts = {name: statistics.median(e.first_s for e in way) for name, way in ways.items()}
    later_s = words["edge"] - words["straight"]
    print(
        f"{round_trip_s * 1e3:.0f} ms: first word {words['edge'] * 1e3:.1f} ms over the edge, "
        f"{words['straight'] * 1e3:.1f} straight ({later_s * 1e3:+.1f}, to be at most "
        f"{MOST_LATER_S * 1e3:+.0f}); first event {firsts['edge'] * 1e3:.1f} ms, "
        f"{firsts['straight'] * 1e3:.1f} straight"
    )
    return later_s <= MOST_LATER_S and firsts["edge"] < round_trip_s


async def refused_here(edge: GatewayProcess, round_trip_s: float) -> bool:
    """A third turn beside two meets the edge's part of the places, and no far side is asked."""
    async with (
        connect(edge.port, KEY) as one_,
        connect(edge.port, KEY) as two,
        connect(edge.port, KEY) as three,
    ):
        running = [asyncio.create_task(one(socket, 6_000)) for socket in (one_, two)]
        await asyncio.sleep(4 * round_trip_s)
        third = await one(three)
        ends = await asyncio.gather(*running)
    print(f"a third turn beside two of two places: {third.kind} after {third.end_s * 1e3:.1f} ms")
    fine = all(end.kind == "response.incomplete" for end in ends)
    return fine and third.kind == "rate_limit_exceeded" and third.end_s < round_trip_s


async def cut(edge: GatewayProcess, wire: Wire, redis: Server) -> bool:
    """The link is silent for a minute, while turns are asked for and one runs."""
    outcomes, good = Counter[str](), set[str]()
    longest_s = 0.0

    def note(ended: Ended) -> None:
        nonlocal longest_s
        outcomes[ended.kind] += 1
        longest_s = max(longest_s, ended.end_s)
        if ended.kind == "response.incomplete":
            good.add(ended.id)

    async with connect(edge.port, KEY) as early, connect(edge.port, KEY) as socket:
        note(await one(socket))
        under_way = asyncio.create_task(one(early, 16_000))
        await asyncio.sleep(1.0)
        wire.is_silent, cut_s = True, time.perf_counter()
        while time.perf_counter() - cut_s < CUT_S:
            note(await one(socket))
            await asyncio.sleep(TURN_PAUSE_S)
        note(await under_way)
        num_during = outcomes.total()
        wire.is_silent, back_s = False, time.perf_counter()
        wire.cut()  # who was silent for a minute has been given up by the network, too
        while (ended := await one(socket)).kind != "response.incomplete":
            assert time.perf_counter() - back_s < 60, outcomes
            await asyncio.sleep(0.1)
        took_s = time.perf_counter() - back_s
        note(ended)
    await asyncio.sleep(2.0)
    places = int(redis.ask("HGET", PLACES, "n") or 0)
    entries = [json.loads(pair[1][1])["task_id"] for pair in redis.ask("XRANGE", LEDGER, "-", "+")]
    charged = {name: entries.count(name) for name in good}
    print(
        f"cut for {CUT_S:.0f} s: {num_during} turns ended {dict(outcomes)}, the last after "
        f"{longest_s:.1f} s; answered again {took_s:.1f} s after the link was back; {places} "
        f"places taken; of {len(good)} answers {sum(n == 1 for n in charged.values())} stand once "
        "in the ledger"
    )
    once = all(number == 1 for number in charged.values()) and len(set(entries)) == len(entries)
    return longest_s <= LONGEST_S and took_s <= BACK_S and places == 0 and once


async def _run(folder: Path) -> bool:
    redis = Server(folder)
    engine = GatewayProcess(folder, "--key", ENGINE_KEY, engine="wafer")
    edge: GatewayProcess | None = None
    with running(redis):
        try:
            await asyncio.to_thread(engine.wait_until_ready)
            async with Wire(engine).open() as wire:
                config = folder / "edge.toml"
                config.write_text(configuration(wire.port))
                url = f"redis://127.0.0.1:{redis.port}"
                edge = GatewayProcess(folder, "--config", str(config), "--redis", url)
                await asyncio.to_thread(edge.wait_until_ready)
                while edge.metrics().total("lanewise_backend_up") < 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                held = [await beside(edge, wire, each) for each in ROUND_TRIPS_S]
                held.append(await refused_here(edge, ROUND_TRIPS_S[-1]))
                held.append(await cut(edge, wire, redis))
        finally:
            for process in (edge, engine):
                if process is not None:
                    await asyncio.to_thread(process.stop)
    return all(held)


def main() -> bool:
    """All of it, on one edge."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_run(Path(folder)))
