"""Memory: forty unfinished bodies, and four sockets that send 15 MiB again and again."""

import asyncio
import json

import httpx
import websockets

from tests.accept.connections import KEY, MIB, connected, gateway, rss_bytes
from tests.e2e.gateway_process import GatewayProcess

BOUND_BYTES = (
    512 * MIB
)  # above the start: 128 in flight, 128 remembered, and what they are copied to
NUM_BODIES, BODY_BYTES = 40, 15 * MIB
NUM_SOCKETS, NUM_TURNS = 4, 12
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


def bodies(process: GatewayProcess) -> None:
    """Sends bodies, none of which ends."""
    head = (
        f"POST /v1/responses HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
        f"content-length: {BODY_BYTES}\r\n\r\n"
    )
    sent = head.encode() + b" " * (BODY_BYTES - 1)
    for each in [connected(process, sent) for _ in range(NUM_BODIES)]:
        each.close()


async def turns(process: GatewayProcess) -> None:
    """Sends turns; each brings an item that weighs little, and is remembered."""
    headers = {"authorization": f"Bearer {KEY}"}
    async with websockets.connect(
        process.socket_url, additional_headers=headers, max_size=None, compression=None
    ) as socket:
        for _ in range(NUM_TURNS):
            item = {"type": "message", "role": "user", "content": "Hi.", "id": "m" * BODY_BYTES}
            await socket.send(
                json.dumps(
                    {
                        "type": "response.create",
                        "model": "lanewise-fast",
                        "input": [item],
                        "store": False,
                        "max_output_tokens": 16,
                    }
                )
            )
            while json.loads(await socket.recv())["type"] not in ENDS:
                pass


async def at_once(process: GatewayProcess) -> None:
    """Sends on all sockets at once."""
    await asyncio.gather(*(turns(process) for _ in range(NUM_SOCKETS)))


def main() -> bool:
    """Runs both, one after the other, each on a gateway of its own."""
    held = True
    for name, attack in (("bodies", bodies), ("sockets", lambda each: asyncio.run(at_once(each)))):
        with gateway() as process:
            before = rss_bytes(process)
            attack(process)
            most = rss_bytes(process, "VmHWM") - before
            status = httpx.get(f"{process.url}/healthz", timeout=60).status_code
            tracebacks = process.log.count("Traceback")
        print(f"{name}: at most {most / MIB:.0f} MiB more; tracebacks: {tracebacks}")
        held = held and most <= BOUND_BYTES and status == 200 and not tracebacks
    return held
