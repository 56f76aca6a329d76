"""What requests and connections leave is freed at once, without the garbage collector.

It would free them some ten thousand objects at a time, and hold every stream meanwhile: 5 to 12 ms
beside a client that only sends what is refused.
"""

import asyncio
import json
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.gateway_process import START_TIMEOUT_S, GatewayProcess, wait_until_at_rest
from tests.hostile.gateway import serving
from tests.hostile.kinds import kinds
from tests.hostile.uncollected import MARK

PATH = f"PYTHONPATH={Path(__file__).parents[2]}"
PROGRAM = ("env", PATH, sys.executable, "-m", "tests.hostile.uncollected")
ASKED = (
    *("frame, model: a fraction", "frame, model: a NUL", "frame, an unknown type"),
    *("body, model: a fraction", "body, model: a NUL", "body, input: true", "body, stream: true"),
    *("chat, tools: true", "chat, stream: true", "HTTP, PATCH of responses"),
    *("handshake, version 8", "handshake, frames at once"),
    *("socket, zeros", "socket, bad UTF-8", "socket, a create, then a close"),
)
# Of each request or connection there is one, and it holds all the rest.
NEVER = ("SocketProtocol", "HttpProtocol", "RequestResponseCycle", "ProtocolError", "Connection")


async def test_requests_and_connections_leave_no_cycles() -> None:
    by_name = {kind.name: kind for kind in kinds()}
    with (
        tempfile.TemporaryDirectory(prefix="lw-g-") as folder,
        serving(Path(folder), program=PROGRAM) as (gateway, target),
    ):
        for asked in ASKED:
            assert not await by_name[asked].ask(target), asked
        wait_until_at_rest(gateway)
        gateway.process.send_signal(signal.SIGUSR1)
        await asyncio.to_thread(wait_until_told, gateway)
        told = gateway.log.partition(MARK)[2].partition("\n")[0]
    left = json.loads(told)
    assert not {name: left[name] for name in NEVER if name in left}


def wait_until_told(gateway: GatewayProcess) -> None:
    """Returns once the garbage stands in the log."""
    give_up_s = time.monotonic() + START_TIMEOUT_S
    while "}\n" not in gateway.log.partition(MARK)[2]:
        assert time.monotonic() < give_up_s, gateway.log
        time.sleep(0.02)
