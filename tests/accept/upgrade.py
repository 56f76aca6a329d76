"""A rolling upgrade of three gateways behind HAProxy, on a Redis Cluster that loses a master.

Six Redis nodes, engines over the link, 50 streams a second on 100 sockets, each turn going on from
the one before it. Each gateway is drained and replaced; while the second one is, the master that
has the ledger is killed, and its replica takes over. Every turn that began gets its terminal
event, none is charged twice, and nothing is missing but what was written in the last second before
the master died, which gateways have counted.

`SEED` takes the seed that a failed run printed.
"""

import asyncio
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from redis.exceptions import RedisError

from router.redis.servers import slot_of
from tests.chaos.fleet import TENANTS, Fleet, fleet
from tests.chaos.load import Load, Tally
from tests.chaos.watch import LEDGER, Watch
from tests.e2e.gateway_process import GatewayProcess
from tests.integration.redis_fleet import SOON_MS, Cluster, running
from tests.ports import free_port

LIMIT_S = 400
SECONDS, STREAMS_PER_S, NUM_SOCKETS = 60.0, 50.0, 100
LOST_S = 1.0  # of what was written before a master died, that may be missing
PROXY = Path(__file__).resolve().parents[2] / "deploy" / "proxies" / "haproxy.cfg"
STREAM = re.compile(r"(127\.0\.0\.1:)(80\d\d)")


@contextmanager
def proxied(folder: Path, ports: dict[str, int]) -> Iterator[None]:
    """Runs HAProxy with the example's configuration, on other ports."""
    path = folder / "haproxy.cfg"
    path.write_text(STREAM.sub(lambda found: found[1] + str(ports[found[2]]), PROXY.read_text()))
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None, "no HAProxy: make setup installs it"
    with (folder / "haproxy.log").open("wb") as log:
        process = subprocess.Popen([program, "-db", "-f", str(path)], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def asking(cluster: Cluster) -> Any:
    """Sends a command to whichever node has its keys."""

    def ask(*command: Any) -> Any:
        told: Exception | None = None
        for server in cluster.servers:
            if server.process.poll() is None:
                try:
                    return server.ask(*command)
                except RedisError as error:  # MOVED: another has it
                    told = error
        raise AssertionError(told)

    return ask


def counted_as_lost(gateways: list[GatewayProcess]) -> Counter[str]:
    """Returns what died with the master by these counts: their logs outlive their metrics."""
    counted = Counter[str]()
    for gateway in gateways:
        for number, kind in re.findall(r"(\d+) (entries|stored)[^\n]* (?:lost|taken)", gateway.log):
            counted[kind] += int(number)
    return counted


async def upgrade(made: Fleet, cluster: Cluster) -> dict[GatewayProcess, int]:
    """Replaces each gateway, and kills a master meanwhile; who went, and their exit statuses."""
    replaced = {}
    for number in range(3):
        await asyncio.sleep(SECONDS / 8)
        old = made.gateways.pop(0)
        stopping = asyncio.create_task(asyncio.to_thread(old.stop))
        if number == 1:
            master = cluster.master_of(slot_of("{ledger}"))
            await asyncio.to_thread(master.send, signal.SIGKILL)
            print(f"the master on port {master.port} is dead", flush=True)
        replaced[old] = await stopping
        made.gateways.append(await made.add(port=old.port))
        print(f"gateway {number + 1} of 3 is replaced", flush=True)
    return replaced


def kept_responses(cluster: Cluster) -> set[str]:
    """Returns the ids of all stored responses that a node has."""
    names: set[str] = set()
    for server in cluster.servers:
        if server.process.poll() is None:
            names.update(server.ask("KEYS", "lw1:*:r:*"))
    return {name.rpartition(":")[2] for name in names}


def entries(ask: Any) -> Counter[str]:
    """Returns the tasks in the ledger, and how often each stands there."""
    told = ask("XRANGE", LEDGER, "-", "+")
    return Counter(msgspec.json.decode(pair[1][1])["task_id"] for pair in told)


def holds(
    tally: Tally,
    charged: Counter[str],
    kept: set[str],
    counted: Counter[str],
    watch: Watch,
    statuses: list[int],
) -> bool:
    """Prints the figures; says whether all are as they should be."""
    missing, twice = tally.terminal_ids - set(charged), [t for t, n in charged.items() if n > 1]
    gone = set(tally.stored_ids) - kept
    bound = LOST_S * STREAMS_PER_S
    print(
        f"{tally}\n{len(charged)} tasks in the ledger, {len(twice)} twice; missing of "
        f"{len(tally.terminal_ids)}: {len(missing)} entries, {counted['entries']} counted; "
        f"{len(gone)} stored responses, {counted['stored']} counted; of each {bound:.0f} may be; "
        f"exit statuses {statuses}; violations: {watch.violations or 'none'}"
    )
    return (
        tally.num_good > 0
        and tally.lost == tally.hung == tally.doubled == 0
        and not twice
        and len(missing) <= min(bound, counted["entries"])
        and len(gone) <= min(bound, counted["stored"])
        and tally.ended["previous_response_not_found"] <= len(gone)
        and tally.refused["503"] == 0
        and statuses == [0, 0, 0]
        and not watch.violations
    )


async def _run(folder: Path, cluster: Cluster, seed: int) -> bool:
    ask = asking(cluster)
    async with fleet(folder, cluster.url) as made:
        made.gateways += await asyncio.gather(made.add(), made.add())
        ports = {f"808{n}": each.port for n, each in enumerate(made.gateways, start=1)}
        front = free_port()
        with proxied(folder, {"8000": front, **ports}):
            await asyncio.sleep(2.0)  # for HAProxy to look at all three
            url = f"ws://127.0.0.1:{front}/v1/responses"
            load = Load(
                lambda: [url],
                num_sockets=NUM_SOCKETS,
                turns_per_s=STREAMS_PER_S,
                seed=seed,
                chains=True,
            )
            run = asyncio.create_task(load.run(SECONDS))
            replaced = await upgrade(made, cluster)
            tally = await run
            watch = Watch(ask, made)
            await watch.at_the_end([tally], ledger=False)
            await asyncio.sleep(LOST_S * 3)  # until gateways have looked for the last responses
            await asyncio.to_thread(watch.look)
            counted = counted_as_lost([*replaced, *made.gateways])
            kept, statuses = kept_responses(cluster), list(replaced.values())
            return holds(tally, entries(ask), kept, counted, watch, statuses)


def main() -> bool:
    """Prints the figures and the seed; returns whether all held."""
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"seed {seed}, tenants {', '.join(TENANTS)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="lw-up-") as name, ExitStack() as stack:
        cluster = Cluster(Path(name))
        stack.enter_context(running(*cluster.servers))
        cluster.form()
        cluster.give_up_after(SOON_MS * 5)  # a busy machine is not dead
        return asyncio.run(_run(Path(name), cluster, seed))
