"""A gateway near its users, 20 and 80 ms from its engine: what a turn costs, and a minute cut.

The edge has a Redis of its own, a part of each limit, and the example's configuration
(`deploy/edge/edge.toml`). Turns go in turns to the edge and straight to the far engine, over the
same distance, on warm sockets. The edge's first word comes within 5 ms of the other. That a turn
has begun the edge says in the write of a quick first word, and after 50 ms where that is later, as
it is from an engine that is slow to begin (ADR 36). It refuses sooner than the far side could. Then
the link is silent for a minute: every turn gets a clear end, no place stays taken, and the next
turn after it is answered.
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
SLOW_S = 0.4  # a round trip to an engine that is slow to begin
NUM_TURNS, NUM_SLOW_TURNS, NUM_WARM = 60, 20, 5  # of each way
MOST_LATER_S = 0.005  # of the edge's first word, at the median: its own time of a turn
HELD_S = 0.050  # the opening events wait so long at most for the first word
ONE_WRITE_S = 0.002  # what came in one write is read within it
OPENING = ("response.created", "response.in_progress")
CUT_S, TURN_PAUSE_S = 60.0, 0.5
LONGEST_S = 15.0  # until a turn has an end: two pings without an answer, and a reconnect
BACK_S = 12.0  # the longest pause between two attempts, jittered, and an opening that was silent
PLACES = "lw1:{studio}:p:fast"
LEDGER = "lw1:{ledger}:entries"


def configuration(port: int) -> str:
    """Returns the example with another address and other keys, and limits whose part is small."""
    text = EXAMPLE.read_text().replace("sk-studio-change-me", KEY)
    text = text.replace("sk-engine-change-me", ENGINE_KEY).replace(
        "127.0.0.1:9100", f"127.0.0.1:{port}"
    )
    text = re.sub(r"requests_per_min = \d+", "requests_per_min = 60000", text)
    return text.replace("max_concurrent = 32", "max_concurrent = 10")  # two of them are the edge's


def turn(num_tokens: int) -> str:
    """Returns a request."""
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
    """Times one turn: its opening, first word and end, in seconds; and says how it ended."""

    def __init__(self) -> None:
        self.opened_s = self.word_s = self.end_s = float("inf")
        self.kind = self.id = ""


async def one(socket: websockets.ClientConnection, num_tokens: int = 8) -> Ended:
    """Takes a turn to its end."""
    ended, sent_s = Ended(), time.perf_counter()
    await socket.send(turn(num_tokens))
    while not ended.kind:
        event = json.loads(await asyncio.wait_for(socket.recv(), 2 * LONGEST_S))
        ended.end_s = time.perf_counter() - sent_s
        if event["type"] in OPENING and ended.word_s == float("inf"):
            ended.opened_s = ended.end_s
        elif event["type"] == "response.output_text.delta":
            ended.word_s = min(ended.word_s, ended.end_s)
        elif event["type"] in TERMINALS:
            ended.kind, ended.id = event["type"], event["response"]["id"]
        elif event["type"] == "error":
            ended.kind = str(event["error"]["code"])
    return ended


def connect(port: int, key: str) -> websockets.connect:
    """Returns a client's socket."""
    return websockets.connect(
        f"ws://127.0.0.1:{port}/v1/responses", additional_headers={"authorization": f"Bearer {key}"}
    )


async def beside(edge: GatewayProcess, wire: Wire, round_trip_s: float) -> bool:
    """Returns what a turn costs over the edge, and straight."""
    wire.delay_s = round_trip_s
    ways: dict[str, list[Ended]] = {"edge": [], "straight": []}
    async with connect(edge.port, KEY) as near, connect(wire.port, ENGINE_KEY) as far:
        for number in range(NUM_TURNS + NUM_WARM):
            for name, socket in (("edge", near), ("straight", far)):
                ended = await one(socket)
                assert ended.kind == "response.incomplete", f"{name}: {ended.kind}"
                if number >= NUM_WARM:
                    ways[name].append(ended)
    words = {name: statistics.median(e.word_s for e in way) for name, way in ways.items()}
    later_s = words["edge"] - words["straight"]
    print(
        f"{round_trip_s * 1e3:.0f} ms: first word {words['edge'] * 1e3:.1f} ms over the edge, "
        f"{words['straight'] * 1e3:.1f} straight ({later_s * 1e3:+.1f}, to be at most "
        f"{MOST_LATER_S * 1e3:+.0f})"
    )
    return opened_in_time(ways["edge"], round_trip_s) and later_s <= MOST_LATER_S


async def slow_to_begin(edge: GatewayProcess, wire: Wire) -> bool:
    """Returns how soon a client hears that its turn has begun, whose first word is far from it."""
    wire.delay_s = SLOW_S
    async with connect(edge.port, KEY) as near:
        turns = [await one(near) for _ in range(NUM_WARM + NUM_SLOW_TURNS)]
    assert all(turn.kind == "response.incomplete" for turn in turns)
    return opened_in_time(turns[NUM_WARM:], SLOW_S)


def opened_in_time(turns: list[Ended], round_trip_s: float) -> bool:
    """Says whether opening events came in the first word's write, or after `HELD_S` without it.

    Where the engine is nearer than half of `HELD_S`, the first word comes while they wait, at the
    median. Nineteen of twenty are to be in time, as others may use the machine.
    """
    before_s = statistics.median(turn.word_s - turn.opened_s for turn in turns)
    opened_s = sorted(turn.opened_s for turn in turns)
    late_s = opened_s[len(turns) * 19 // 20 - 1]
    is_quick = round_trip_s < HELD_S / 2
    print(
        f"{round_trip_s * 1e3:.0f} ms: begun {statistics.median(opened_s) * 1e3:.1f} ms after "
        f"asking, {late_s * 1e3:.1f} for 19 of 20 (to be at most {HELD_S * 1e3:.0f} of waiting and "
        f"{MOST_LATER_S * 1e3:.0f}), {before_s * 1e3:.2f} ms before the first word"
        + (f" (to be at most {ONE_WRITE_S * 1e3:.0f})" if is_quick else "")
    )
    in_time = late_s <= HELD_S + MOST_LATER_S and before_s >= 0
    return in_time and (before_s <= ONE_WRITE_S or not is_quick)


async def refused_here(edge: GatewayProcess, round_trip_s: float) -> bool:
    """Lets a third turn beside two meet the edge's part of the places; no far side is asked."""
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
    """Keeps the link silent for a minute, while turns are asked for and one runs."""
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
                held.append(await slow_to_begin(edge, wire))
                wire.delay_s = ROUND_TRIPS_S[-1]
                held.append(await refused_here(edge, ROUND_TRIPS_S[-1]))
                held.append(await cut(edge, wire, redis))
        finally:
            for process in (edge, engine):
                if process is not None:
                    await asyncio.to_thread(process.stop)
    return all(held)


def main() -> bool:
    """Checks all of it, on one edge."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_run(Path(folder)))
