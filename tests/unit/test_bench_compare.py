"""Tests the comparison with other gateways: its load reads right, and its rows say who is ahead."""

import argparse
import asyncio
import os
import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from tests.bench import rows as shape
from tests.bench.compare_rows import FIGURES, LOADS, OURS, STRAIGHT, load_check, report, rows_of
from tests.bench.paced_upstream import Connection, tokens_of
from tests.bench.rivals.running import tree
from tests.bench.token_load import MODES, Answer, Arrival, Streamer, delays_of, deltas_of


def asked(port: int, mode: str) -> argparse.Namespace:
    return argparse.Namespace(
        url=f"http://127.0.0.1:{port}/v1", mode=mode, model="fake", key="none", header=[]
    )


@pytest.mark.parametrize("rate", [0, 2000])
@pytest.mark.parametrize("mode", MODES)
async def test_every_token_arrives_as_it_was_sent(mode: str, rate: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(Connection, ("fake",)), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    made = partial(Streamer, asked(port, mode))
    _, streamer = await loop.create_connection(made, "127.0.0.1", port)
    await streamer.is_open
    for stream in (3, 41):  # the second on the same connection
        answer = await streamer.request(stream, 130, rate)
        deltas = deltas_of(answer, mode)
        assert [text for _, text in deltas] == tokens_of(stream, 130)
        if rate:
            delays = delays_of(deltas, tokens_of(stream, 130), Connection.sent_us.pop(stream))
            assert len(delays) == 130
            assert min(delays) >= 0
    streamer.close()
    server.close()


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 64, 1000])
async def test_an_answer_is_read_whatever_its_reads_are(cut: int) -> None:
    sent: list[bytes] = []
    upstream = Connection(("fake",))
    upstream.send = sent.append  # type: ignore[method-assign]
    body = b'{"type":"response.create","model":"m","input":"from 5 for 30 at 0"}'
    upstream._answer(body)
    data = b"".join(sent)
    pieces = [data[at : at + cut] for at in range(0, len(data), cut)]
    arrivals = [Arrival(at_us, piece) for at_us, piece in enumerate(pieces)]
    deltas = deltas_of(Answer(5, 0, arrivals), "responses-ws")
    assert "".join(text for _, text in deltas) == "".join(tokens_of(5, 30))
    streamer = Streamer(asked(1, "responses-ws"))
    streamer.is_open.set_result(None)
    for piece in pieces[:-1]:
        streamer.data_received(piece)
    assert not streamer._over.done()
    streamer.data_received(pieces[-1])
    assert streamer._over.done()


def test_a_token_is_as_late_as_the_read_that_brings_its_last_character() -> None:
    deltas = [(100, "ab"), (300, "cdefg"), (900, "h")]
    assert delays_of(deltas, ["ab", "cd", "ef", "gh"], [90, 100, 200, 300]) == [10, 200, 100, 600]
    assert delays_of(deltas[:1], ["ab", "cd"], [90, 100]) == [10]  # the rest never came


def kept() -> dict[str, Any]:
    def short(cpu_us: float, p50: float, busy: float = 0.2) -> dict[str, Any]:
        latency = {"total_ms": {"p50": p50, "p99": 2 * p50}}
        load = {"load_busy": busy, "upstream_busy": 0.1, "redis_cpu_us": 7.0}
        return {"cpu_us": cpu_us, **latency, **load}

    load = LOADS[0].name
    return {
        "machine": {"at": "2026-11-21T00:00:00Z", "commit": "c", "cores": 2, "cpu": "a CPU"},
        "versions": {OURS: "1", "Relay": "2", "Slow": "3", "Quick": "4"},
        "routes": {OURS: True, "Relay": False, "Slow": True, "Quick": True},
        "notes": {"Slow": "is slow"},
        "failures": {"Gone": "cannot be installed: no wheel"},
        "figures": {
            load: {
                STRAIGHT: [short(0, 1.0), short(0, 1.0)],
                OURS: [short(300, 2.0), short(200, 3.0)],
                "Relay": [short(20, 1.1)],
                "Slow": [short(9000, 50.0, busy=0.95)] * 2,
                "Quick": [short(250, 1.5)] * 2,
            }
        },
    }


def test_rows_set_ours_against_the_best_that_routes_and_the_best_relay() -> None:
    rows = {row.name: row for row in rows_of(kept())}
    cost = FIGURES[0].title
    routed = rows[f"{cost}, {LOADS[0].name}: against the best that routes"]
    assert (routed.baseline, routed.value, routed.baseline_value) == ("Quick", 250, 250)
    assert routed.met
    relay = rows[f"{cost}, {LOADS[0].name}: against the best relay"]
    assert (relay.baseline, relay.goal) == ("Relay", None)
    added = rows[f"added latency, p50, {LOADS[0].name}: against the best that routes"]
    assert (added.value, added.baseline_value, added.met) == (1.5, 0.5, False)
    assert len(rows) == 6
    assert "load at most 95% busy, upstream 10%; THE LIMIT" in load_check(kept(), LOADS[0])
    assert shape.text_table(list(rows.values()))


def test_the_report_names_what_could_not_be_measured() -> None:
    for markdown in (False, True):
        text = report(kept(), markdown=markdown)
        assert "Gone: cannot be installed: no wheel" in text
        assert "its Redis, beside it" in text
        assert "Slow: is slow" in text


def test_a_process_tree_holds_children_of_children() -> None:
    code = "import subprocess, sys; subprocess.run(['sh', '-c', 'sleep 60 & echo up; wait'])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        pids = tree(process.pid)
        assert len(pids) == 3
        assert process.pid == pids[0]
        for pid in pids:  # no parent sees its child end, and ends itself
            os.kill(pid, 9)
    assert tree(process.pid) == []
