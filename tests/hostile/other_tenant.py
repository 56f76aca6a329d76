"""Plays a tenant who means well: short tasks on one socket, one after the other, for ever.

    python -m tests.hostile.other_tenant PORT

It is a process of its own, so that what it measures is the gateway's time and not that of whoever
attacks. It prints how many seconds each task took, a line each.
"""

import asyncio
import sys
import time

import msgspec
import websockets

from tests.hostile.gateway import OTHER_KEY

PAUSE_S = 0.02  # between tasks
TERMINAL = "response.completed", "response.incomplete"
CREATE = msgspec.json.encode(
    {
        "type": "response.create",
        "model": "lanewise-fast",
        "input": "Say hi.",
        "max_output_tokens": 16,
        "store": False,
    }
).decode()


class Event(msgspec.Struct):
    """Any event; its type alone matters."""

    type: str


async def work(port: int) -> None:
    """Works until it is killed; an answer that is no answer ends it."""
    url, headers = f"ws://127.0.0.1:{port}/v1/responses", {"authorization": f"Bearer {OTHER_KEY}"}
    async with websockets.connect(url, additional_headers=headers, compression=None) as socket:
        while True:
            began_s = time.perf_counter()
            await socket.send(CREATE)
            found = ""
            while found not in TERMINAL:
                found = msgspec.json.decode(await socket.recv(), type=Event).type
                if found in ("error", "response.failed"):
                    sys.exit(f"the other tenant got {found}")
            print(time.perf_counter() - began_s, flush=True)
            await asyncio.sleep(PAUSE_S)


if __name__ == "__main__":
    asyncio.run(work(int(sys.argv[1])))
