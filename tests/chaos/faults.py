"""Plays F8, F9, F12, F13, F16, F17 and F19: engines, drains, disks, and what strangers try."""

import asyncio
import contextlib
import os
import random
import resource
import signal
import statistics
import subprocess
import time
import urllib.request
from http.client import HTTPConnection

import httpx
import websockets

from tests.chaos.fleet import (
    CANARY,
    KEY_ENV,
    NOISY_KEY,
    STEADY_KEY,
    Fleet,
    redis_and_fleet,
    until,
)
from tests.chaos.load import Load, Tally, quantile
from tests.chaos.loads import steady_load
from tests.chaos.stage import Checks, Stage
from tests.chaos.watch import watching
from tests.e2e.gateway_process import LANEWISE, GatewayProcess
from tests.integration.fault_server import FaultServer
from tests.ports import free_port

UPSTREAM = """
[[backends]]
kind = "upstream"
name = "{name}"
[backends.options]
group = "fast"
model = "shared"
upstream_model = "told"
base_url = "http://127.0.0.1:{port}/v1"
key_env = "{key_env}"
protocol = "responses"
probe_interval_s = 0.2
retry_pause_s = 0.01
{more}
"""
# What the upstream does -> how often a task may reach it: again only before the first token, and
# then as the budget of retries allows.
ENGINE_FAULTS = {
    "hang before headers": 1,
    "hang before the first token": 1,
    "hang midway": 1,
    "garbage": 1,
    "error event": 1,
    "cut": 1,
    "end without a terminal": 1,
    "status 500": 3,
    "status 429": 3,
}
PAUSED = "status 429 30"  # nobody asks it for half a minute then
NUM_EACH = 50
MAX_RETRIED = 0.2
NUM_BAD_KEYS, NUM_SWAPS = 10_000, 1_000
DISK_BYTES = 256 << 10  # and then the disk is full


async def engine_faults(stage: Stage) -> list[str]:
    """Plays F8: each fault, fifty times."""
    checks = Checks()
    async with FaultServer.running() as broken:
        patience = "idle_timeout_s = 0.5\nfirst_token_timeout_s = 0.5\neject_after = 100000"
        more = UPSTREAM.format(name="broken", port=broken.http_port, more=patience, key_env=KEY_ENV)
        async with (
            redis_and_fleet(stage.folder, more=more, num_up=3) as (server, fleet),
            watching(server, fleet) as watch,
        ):
            tallies = []
            for fault, num_asked in ENGINE_FAULTS.items():
                broken.plan, before = [fault], broken.num_requests
                tally = await _turns(fleet, NUM_EACH)
                tallies.append(tally)
                asked = broken.num_requests - before
                checks.that(
                    tally.ended.total() == NUM_EACH and tally.num_good == tally.lost == 0,
                    f"{fault}: {dict(tally.ended)}, {tally.lost} lost",
                )
                within = NUM_EACH <= asked <= NUM_EACH * num_asked
                checks.that(within, f"{fault}: asked {asked} times")
            broken.plan = ["answer"]
            tallies.append(await _turns(fleet, NUM_EACH))
            good = tallies[-1].num_good
            checks.that(good == NUM_EACH, f"once it is well: {good} of {NUM_EACH} answered")
            broken.plan, before = [PAUSED], broken.num_requests
            tallies.append(await _turns(fleet, NUM_EACH))
            asked = broken.num_requests - before
            told = f"{PAUSED}: asked {asked} times, {dict(tallies[-1].ended)}"
            checks.that(tallies[-1].num_good == 0 and asked <= 10, told)
            await watch.at_the_end(tallies, ledger=False)
    checks.no_violation(watch)
    return checks.failures


async def _turns(fleet: Fleet, number: int) -> Tally:
    """Runs so many turns, ten at a time, each on a socket of its own."""
    tally = Tally()

    async def some() -> None:
        for _ in range(number // 10):
            load = Load(lambda: fleet.urls, num_sockets=1, turns_per_s=1e6, seed=0, model="shared")
            load.tally = tally
            await load.once()

    await asyncio.gather(*(some() for _ in range(10)))
    return tally


async def flapping(stage: Stage) -> list[str]:
    """Plays F9: an engine is up for a second and down for a second, beside one that is well."""
    checks = Checks()
    ejection = "ejection_s = 2\nslow_start_s = 5\nmax_num_seqs = 64"
    async with FaultServer.running() as flaps, FaultServer.running() as well:
        more = "".join(
            UPSTREAM.format(name=name, port=each.http_port, more=ejection, key_env=KEY_ENV)
            for name, each in (("a-flapping", flaps), ("b-well", well))
        )
        async with (
            redis_and_fleet(stage.folder, more=more, num_up=4) as (server, fleet),
            watching(server, fleet) as watch,
        ):
            load = Load(
                lambda: fleet.urls, num_sockets=40, turns_per_s=20, seed=stage.seed, model="shared"
            )
            running = asyncio.create_task(load.run(stage.seconds))
            ejected, places = False, set()
            while not running.done():
                flaps.plan = ["status 500"] if flaps.plan == ["answer"] else ["answer"]
                await asyncio.sleep(1.0)
                samples = await asyncio.to_thread(fleet.gateways[0].metrics)
                ejected |= samples.total("lanewise_backend_ejected", backend="a-flapping") > 0
                places.add(samples.total("lanewise_backend_max_seqs", backend="a-flapping"))
            tally = await running
            print(f"  {tally}")
            num_asked = flaps.num_requests + well.num_requests
            retried = num_asked / max(1, tally.ended.total()) - 1
            checks.that(ejected, "it was ejected")
            checks.that(retried <= MAX_RETRIED, f"{retried:.1%} more requests than turns")
            checks.that(len(places) > 1, f"slow start: it was given {sorted(places)} places")
            checks.that(tally.lost == 0, f"turns lost: {tally.lost}")
            await watch.at_the_end([tally], ledger=False)
    checks.no_violation(watch)
    return checks.failures


async def drain(stage: Stage) -> list[str]:
    """Plays F12: one of two gateways is drained and replaced, again and again."""
    checks = Checks()
    async with (
        redis_and_fleet(stage.folder, 2) as (server, fleet),
        watching(server, fleet) as watch,
    ):
        load = steady_load(stage, lambda: fleet.urls, chains=True)
        run = asyncio.create_task(load.run(stage.seconds))
        statuses = []
        for number in range(2):
            await asyncio.sleep(stage.seconds / 4)
            old = fleet.gateways.pop(0)
            statuses.append(await asyncio.to_thread(old.stop))
            fleet.gateways.append(await fleet.add(port=old.port))
            print(f"  gateway {number + 1} was replaced")
        tally = await run
        print(f"  {tally}")
        checks.that(statuses == [0, 0], f"exit statuses {statuses}")
        checks.that(tally.lost == 0, f"turns begun and lost: {tally.lost}")
        forgotten = tally.ended["previous_response_not_found"]
        checks.that(forgotten == 0, f"completed turns that nobody knows: {forgotten}")
        failed = tally.ended["response.failed"]
        checks.that(failed == 0, f"turns failed: {failed}")
        await watch.at_the_end([tally])
    checks.no_violation(watch)
    return checks.failures


async def full_disk(stage: Stage) -> list[str]:
    """Plays F13: there are no more bytes for its files, and nobody reads its log pipe."""
    checks = Checks()
    more = f'\n[recording]\npath = "{stage.folder / "decisions.jsonl"}"\n'
    async with (
        redis_and_fleet(stage.folder, more=more) as (server, fleet),
        watching(server, fleet) as watch,
    ):
        pid = fleet.gateways[0].process.pid
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (DISK_BYTES, DISK_BYTES))
        load = Load(lambda: fleet.urls, num_sockets=50, turns_per_s=50, seed=stage.seed)
        tally = await load.run(stage.seconds)
        print(f"  {tally}")
        checks.that(tally.num_errors + tally.lost == 0, f"errors: {tally.num_errors + tally.lost}")
        lost = (
            fleet.gateways[0].metrics().total("lanewise_decision_records_total", result="dropped")
        )
        told = sum(path.stat().st_size for path in stage.folder.glob("decisions.jsonl*"))
        checks.that(told <= 2 * DISK_BYTES, f"{told} bytes written, {lost:.0f} records dropped")
        await watch.at_the_end([tally])
        await _blocked_pipe(checks, stage, f"redis://127.0.0.1:{server.port}")
    checks.no_violation(watch)
    return checks.failures


async def _blocked_pipe(checks: Checks, stage: Stage, redis_url: str) -> None:
    """Runs a gateway whose standard error nobody reads: some 64 KiB fit into the pipe."""
    port = free_port()
    reading, writing = os.pipe()
    process = subprocess.Popen(  # noqa: ASYNC220
        [str(LANEWISE), "serve", "--port", str(port), "--redis", redis_url],
        stdout=writing,
        stderr=writing,
        cwd=stage.folder,
    )
    os.close(writing)
    try:
        url = f"http://127.0.0.1:{port}"
        is_up = await until(lambda: urllib.request.urlopen(f"{url}/healthz").status == 200)
        load = Load(
            lambda: [f"ws://127.0.0.1:{port}/v1/responses"],
            num_sockets=20,
            turns_per_s=60,
            seed=stage.seed,
            key="sk-lanewise-dev",
        )
        tally = await load.run(stage.seconds / 2)
        print(f"  {tally}")
        good = is_up and tally.num_good > 0 and tally.num_errors + tally.lost + tally.hung == 0
        checks.that(good, f"a blocked log pipe: {tally.num_good} turns, {tally.num_errors} errors")
        process.send_signal(signal.SIGTERM)
        status = await asyncio.to_thread(process.wait, 30)
        checks.that(status == 0, f"it still stops: status {status}")
    finally:
        os.close(reading)
        process.kill()
        process.wait()


async def bad_keys(stage: Stage) -> list[str]:
    """Plays F16: keys are none, though some look like one that is."""
    checks = Checks()
    async with redis_and_fleet(stage.folder) as (_, fleet):
        gateway = fleet.gateways[0]
        num = max(1_000, int(NUM_BAD_KEYS * min(1.0, stage.seconds / 30)))
        taken_s, statuses = await asyncio.to_thread(_ask_with, gateway, num, stage.seed)
        checks.that(set(statuses) == {401}, f"{len(statuses)} bad keys got {set(statuses)}")
        checks.below(quantile(taken_s[0] + taken_s[1], 0.5), 0.005, "seconds to a 401, at p50")
        # The slowest tenth of each kind, which others' work decides, is left out.
        means = [statistics.fmean(sorted(each)[: len(each) * 9 // 10]) for each in taken_s]
        checks.below(
            abs(means[0] - means[1]) * 1e6,
            5.0,
            "microseconds between a key nearly right and any other",
        )
    return checks.failures


def _ask_with(
    gateway: GatewayProcess, number: int, seed: int
) -> tuple[tuple[list[float], list[float]], list[int]]:
    """Asks with keys nearly right and any others in turns, whose order is drawn for each pair.

    Returns the seconds that each kind took, and all statuses. The client does as little as it can,
    since its own time varies more than what is looked for.
    """
    chance = random.Random(seed)
    taken_s: tuple[list[float], list[float]] = ([], [])
    statuses: list[int] = []
    beginnings = STEADY_KEY[:-4], "ks" + STEADY_KEY[2:-4]
    with contextlib.closing(HTTPConnection("127.0.0.1", gateway.port, timeout=60)) as client:
        for _ in range(number // 2):
            for kind in chance.sample((0, 1), 2):
                key = f"{beginnings[kind]}{chance.getrandbits(16):04x}"
                headers = {"authorization": f"Bearer {key}"}
                began_s = time.perf_counter()
                client.request("GET", "/v1/models", headers=headers)
                answer = client.getresponse()
                answer.read()
                taken_s[kind].append(time.perf_counter() - began_s)
                statuses.append(answer.status)
    return taken_s, statuses


async def canaries(stage: Stage) -> list[str]:
    """Plays F17: tasks fail, are refused and are cut; no word of them may be in logs or metrics."""
    checks = Checks()
    async with (
        redis_and_fleet(stage.folder) as (server, fleet),
        watching(server, fleet) as watch,
    ):
        load = Load(lambda: fleet.urls, num_sockets=20, turns_per_s=40, seed=stage.seed)
        run = asyncio.create_task(load.run(stage.seconds))
        gateway = fleet.gateways[0]
        bodies = (
            {"model": "none-such", "input": CANARY},  # the log names the model
            {"model": "lanewise-fast", "input": [{"type": CANARY}]},
            {"model": "lanewise-fast", "input": CANARY, "temperature": CANARY},
            {"model": "lanewise-fast", "input": CANARY, "previous_response_id": CANARY},
            {CANARY: CANARY},
        )
        statuses = set()
        async with httpx.AsyncClient(base_url=gateway.base_url, timeout=60) as client:
            for body in bodies:
                for key in (STEADY_KEY, CANARY):
                    headers = {"authorization": f"Bearer {key}", "x-request-id": CANARY}
                    answer = await client.post("/responses", json=body, headers=headers)
                    statuses.add(answer.status_code)
            await client.get(f"/{CANARY}?key={CANARY}", headers={"user-agent": CANARY})
        headers = {"authorization": f"Bearer {STEADY_KEY}"}
        async with websockets.connect(gateway.socket_url, additional_headers=headers) as socket:
            await socket.send(f'{{"type": "{CANARY}", broken')
            with contextlib.suppress(websockets.ConnectionClosed, TimeoutError):
                await asyncio.wait_for(socket.recv(), 10)
        tally = await run
        print(f"  {tally}; refusals {sorted(statuses)}")
        checks.that(max(statuses) < 500, f"statuses {sorted(statuses)}")
        await watch.at_the_end([tally])
    checks.no_violation(watch)
    return checks.failures


async def swaps(stage: Stage) -> list[str]:
    """Plays F19: a tenant asks for the responses of another, in every way there is."""
    checks = Checks()
    async with (
        redis_and_fleet(stage.folder) as (server, fleet),
        watching(server, fleet) as watch,
    ):
        load = Load(
            lambda: fleet.urls, num_sockets=20, turns_per_s=200, seed=stage.seed, stores=True
        )
        tally = await load.run(2.0)
        chance = load.chance
        found: list[str] = []
        gateway, headers = fleet.gateways[0], {"authorization": f"Bearer {NOISY_KEY}"}
        async with httpx.AsyncClient(
            base_url=gateway.base_url, headers=headers, timeout=60
        ) as client:
            for _ in range(NUM_SWAPS):
                made = chance.choice(tally.stored_ids)
                body = {"model": "lanewise-fast", "input": "And?", "previous_response_id": made}
                method, path, sent = chance.choice(
                    (
                        ("GET", f"/responses/{made}", None),
                        ("DELETE", f"/responses/{made}", None),
                        ("POST", f"/responses/{made}/cancel", None),
                        ("GET", f"/responses/{made}/input_items", None),
                        ("POST", "/responses", body),
                    )
                )
                answer = await client.request(method, path, json=sent)
                told = answer.json().get("error", {})
                if answer.status_code not in (400, 404) or "not found" not in str(told).lower():
                    found.append(
                        f"{method} {path.replace(made, 'ID')}: {answer.status_code} {told}"
                    )
        checks.that(
            not found,
            f"{NUM_SWAPS} swaps of {len(tally.stored_ids)} ids; found: {found[:3] or 'none'}",
        )
        await watch.at_the_end([tally])
    checks.no_violation(watch)
    return checks.failures
