"""1,000 tasks on an upstream that lies: none overcharged or refused, at most 64 MB of memory more.

The lies are in usage, length and size (tests/e2e/lying_upstream.py), over all three protocols.
"""

import asyncio
import tempfile
from collections import Counter
from pathlib import Path

from tests.e2e.gateway_process import GatewayProcess, redis_server
from tests.e2e.lying_tasks import ask_all, every_lie, lied_to

NUM_TASKS = 1_000
AT_ONCE = 32
MAX_GROWTH_MB = 64


def main() -> bool:
    """Print each complaint, and how far the memory grew."""
    with tempfile.TemporaryDirectory(prefix="lw-liar-") as name:
        folder = Path(name)
        with redis_server(folder) as redis_url:
            return asyncio.run(_measure(folder, redis_url))


async def _measure(folder: Path, redis_url: str) -> bool:
    async with lied_to(folder, redis_url) as (gateway, liar):
        await ask_all(gateway, every_lie(48), AT_ONCE)  # what it loads once, it loads now
        before_mb = _resident_mb(gateway)
        told = await ask_all(gateway, every_lie(NUM_TASKS), AT_ONCE)
        grown_mb = _resident_mb(gateway) - before_mb
        complaints = [f"{each.asked}: {what}" for each in told for what in each.complaints()]
        outcomes = Counter(each.body.get("status", each.status) for each in told)
        print(f"{len(told)} tasks: {dict(outcomes)}; {len(complaints)} beyond their bounds")
        print("\n".join(complaints[:20]))
        print(f"memory: {before_mb:.0f} MB before, {grown_mb:+.0f} MB after (at most +64)")
        print(f"{liar.num_open} answers still go on at the upstream")
        return not complaints and grown_mb <= MAX_GROWTH_MB and liar.num_open == 0


def _resident_mb(gateway: GatewayProcess) -> float:
    """Returns what proc(5) has as VmRSS."""
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    return int(kilobytes) / 1024


if __name__ == "__main__":
    raise SystemExit(not main())
