"""`kill -HUP` with a changed file: in force within 10 s, and none of 1,000 tasks fails for it.

Asked in one process and in two workers. Each change brings a tenant and takes one away, and gives
the deep engine other options, so that it is another engine.
"""

import asyncio
import itertools
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx

from tests.e2e.gateway_process import GatewayProcess, redis_server
from tests.e2e.socket_client import SocketClient

LIMIT_S = 900
NUM_TASKS = 1_000
NUM_SOCKETS = 20
IN_FORCE_S = 10.0
PAUSE_S = 1.0  # between a change that is in force and the next

TENANT = """
[[tenants]]
id = "{id}"
keys = ["sk-of-{id}"]
limits.fast = {{ requests_per_min = 1000000, tokens_per_min = 1000000000, max_concurrent = 1000 }}
limits.deep = {{ requests_per_min = 1000000, tokens_per_min = 1000000000, max_concurrent = 1000 }}
"""
ENGINES = """
[[backends]]
kind = "wafer"
name = "wafer"

[[backends]]
kind = "gpu"
name = "gpu"
options.max_num_seqs = {num_seqs}
"""


def main() -> bool:
    """Print what became of the tasks, and how long each change took."""
    held = [asyncio.run(_measure(workers)) for workers in (1, 2)]
    return all(held)


def _file(number: int) -> str:
    """Returns the configuration after so many changes."""
    tenants = TENANT.format(id="steady") + TENANT.format(id=f"guest-{number}")
    return tenants + ENGINES.format(num_seqs=128 + number)


async def _measure(workers: int) -> bool:
    with tempfile.TemporaryDirectory(prefix="lw-reload-") as name, redis_server(Path(name)) as url:
        path = Path(name) / "lanewise.toml"
        path.write_text(_file(0))
        arguments = ("--config", str(path), "--redis", url, "--workers", str(workers))
        gateway = GatewayProcess(Path(name), *arguments)
        try:
            gateway.wait_until_ready()
            while workers > 1 and gateway.metrics().total("lanewise_workers") < workers:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            changing = asyncio.create_task(_change(gateway, path))
            numbers = itertools.count()
            sockets = [_ask(gateway, numbers) for _ in range(NUM_SOCKETS)]
            outcomes = sum(await asyncio.gather(*sockets), Counter[str]())
            changing.cancel()
            took_s = (await asyncio.gather(changing, return_exceptions=True))[0]
            if not isinstance(took_s, list):
                raise took_s
        finally:
            status = gateway.stop()
    print(f"{workers} process(es): {dict(outcomes)}, {len(took_s)} changes, in force after at most "
          f"{max(took_s, default=0):.1f} s")  # fmt: skip
    failed = NUM_TASKS - outcomes["response.completed"]
    return failed == 0 and len(took_s) > 0 and max(took_s) <= IN_FORCE_S and status == 0


async def _ask(gateway: GatewayProcess, numbers: "itertools.count[int]") -> Counter[str]:
    """Sends one task after another on a socket; returns how they ended."""
    outcomes: Counter[str] = Counter()
    async with SocketClient.open(gateway, key="sk-of-steady") as client:
        while (number := next(numbers)) < NUM_TASKS:
            model = "lanewise-deep" if number % 2 else "lanewise-fast"
            prompt = f"Explain, in about 60 tokens, what the number {number} is."
            await client.create(prompt, model=model)
            terminal = await client.terminal()
            outcomes[terminal["type"]] += 1
    return outcomes


async def _change(gateway: GatewayProcess, path: Path) -> list[float]:
    """Changes the file until cancelled; returns how long each change took to be in force."""
    took_s: list[float] = []
    try:
        async with httpx.AsyncClient(base_url=gateway.base_url) as client:
            for number in itertools.count(1):
                path.write_text(_file(number))  # noqa: ASYNC240 - a few hundred bytes
                began_s = time.monotonic()
                gateway.process.send_signal(signal.SIGHUP)
                key = {"authorization": f"Bearer sk-of-guest-{number}"}
                num_in_a_row = 0  # of new connections, to meet every worker
                while num_in_a_row < 8:
                    answer = await client.get("/models", headers=key | {"connection": "close"})
                    num_in_a_row = num_in_a_row + 1 if answer.status_code == 200 else 0
                    if time.monotonic() - began_s > 6 * IN_FORCE_S:
                        raise AssertionError(f"never in force:\n{gateway.log[-3000:]}")
                    await asyncio.sleep(0.05)
                took_s.append(time.monotonic() - began_s)
                await asyncio.sleep(PAUSE_S)
    except asyncio.CancelledError:
        pass
    return took_s


if __name__ == "__main__":
    raise SystemExit(not main())
