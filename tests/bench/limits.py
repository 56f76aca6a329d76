"""Asks whether four gateway processes on one Redis exceed limits, at several times their load.

    python tests/bench/limits.py [--seconds 60]

The test suite runs the same for three seconds.
"""

import argparse
import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gateway.process.embedded_redis import EmbeddedRedis
from tests.integration.pools_load import check_limits


async def main(seconds: float) -> None:
    server = EmbeddedRedis()
    try:
        url = await server.start()
        print(await asyncio.to_thread(check_limits, url, seconds))
    finally:
        await server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    asyncio.run(main(parser.parse_args().seconds))
