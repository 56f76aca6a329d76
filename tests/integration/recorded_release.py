"""Supports the tests with what a release wrote to Redis: records it, and puts it into another.

    python -m tests.integration.recorded_release      # of this version: `make release` does it

A file holds every key by its type, not as Redis dumps it, so that any server can take it, and what
a client or an admin must find by it. It is written once for each release, and stays.
"""

import base64
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
from redis import Redis

from gateway.config.version import VERSION
from tests.e2e.admin_api import ask
from tests.e2e.gateway_process import GatewayProcess, served, wait_until_at_rest
from tests.integration.redis_fleet import Server, eventually, running

FOLDER = Path(__file__).parent / "releases"
TENANT, RUN = "kept", "nightly-42"
PEPPERS = {"LANEWISE_KEY_PEPPERS": "1:" + "ab" * 32}
# Long enough that what a release stored is still there for the releases after it.
CONFIG = """
[store]
ttl_s = 3153600000

[[prices]]
model = "lanewise-fast"
input = 1.5
output = 6.0
"""
POLICY = '[[rules]]\nname = "of-an-earlier-release"\nroute = "fast"\n'
BUDGETS = {"run": {"hard_usd": 5}, "month": {"hard_usd": 200}}
Kind = Literal["string", "hash", "zset", "set", "list", "stream"]


class Recorded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Is one release's data: what was made, and all keys; member names are text, values base64."""

    version: str
    key: str  # one that was made at run time
    response: str  # stored, by that key's tenant
    policy: int  # the version in force
    spent_usd: float  # of the run's budget
    redis: dict[str, tuple[Kind, Any]]


def recordings() -> list[Path]:
    """Returns the files of all releases."""
    return sorted(FOLDER.glob("*.json"))


def read(path: Path) -> Recorded:
    """Reads one of them."""
    return msgspec.json.decode(path.read_bytes(), type=Recorded)


def gateway_on(folder: Path, server: Server) -> Any:
    """Returns a gateway of this version, as it is configured in all recordings."""
    config = folder / "lanewise.toml"
    config.write_text(CONFIG)
    url = f"redis://127.0.0.1:{server.port}"
    return served(folder, "--config", str(config), "--redis", url, environ=PEPPERS)


def respond(gateway: GatewayProcess, key: str, previous: str | None = None) -> tuple[int, Any]:
    """Runs a task of the run, which goes on from another one's response."""
    body = {
        "model": "lanewise-fast",
        "input": "Say hi.",
        "max_output_tokens": 16,
        "metadata": {"run": RUN},
        "previous_response_id": previous,
    }
    return ask(gateway, "POST", "/v1/responses", body, key=key)


def spent_usd(gateway: GatewayProcess) -> float:
    """Returns what the run has spent in all."""
    status, view = ask(gateway, "GET", f"/admin/budgets?tenant={TENANT}&run={RUN}")
    assert status == 200, view
    return float(next(each["used_usd"] for each in view["budgets"] if each["scope"] == "run"))


def record(folder: Path) -> Recorded:
    """Makes one of everything that is kept, by a gateway of this version."""
    server = Server(folder)
    with running(server), gateway_on(folder, server) as gateway:
        tenant = {"id": TENANT, "tier": "enterprise", "budgets": BUDGETS}
        _done(ask(gateway, "POST", "/admin/tenants", tenant))
        secret = _done(ask(gateway, "POST", "/admin/keys", {"tenant": TENANT}))["key"]
        policy = _done(ask(gateway, "POST", "/admin/policies", {"document": POLICY}))["version"]
        _done(ask(gateway, "POST", f"/admin/policies/{policy}/activate", {"expected": None}))
        response = _done(respond(gateway, secret))["id"]
        wait_until_at_rest(gateway)
        eventually(lambda: server.ask("EXISTS", f"lw1:{{{TENANT}}}:r:{response}"))
        eventually(lambda: server.ask("XLEN", "lw1:{ledger}:entries"))
        with Redis(port=server.port) as client:
            redis = {key.decode(): _taken(client, key) for key in sorted(client.keys("lw1:*"))}
        return Recorded(VERSION, secret, response, policy, spent_usd(gateway), redis)


def _done(answer: tuple[int, Any]) -> Any:
    status, body = answer
    assert status < 300, body
    return body


def _taken(client: Redis, key: bytes) -> tuple[Kind, Any]:
    """Returns a key's type and content."""
    readers: dict[Kind, Callable[[], Any]] = {
        "string": lambda: client.get(key),
        "hash": lambda: {k.decode(): v for k, v in client.hgetall(key).items()},
        "zset": lambda: [(m.decode(), s) for m, s in client.zrange(key, 0, -1, withscores=True)],
        "set": lambda: sorted(client.smembers(key)),
        "list": lambda: client.lrange(key, 0, -1),
        "stream": lambda: [
            (i.decode(), {k.decode(): v for k, v in fields.items()})
            for i, fields in client.xrange(key)
        ],
    }
    kind: Kind = client.type(key).decode()
    return kind, readers[kind]()


def put(recorded: Recorded, server: Server) -> None:
    """Puts everything that the release wrote into a server that has nothing."""
    raw = base64.b64decode
    with Redis(port=server.port) as client:
        for key, (kind, value) in recorded.redis.items():
            if kind == "string":
                client.set(key, raw(value))
            elif kind == "hash":
                client.hset(key, mapping={name: raw(each) for name, each in value.items()})
            elif kind == "zset":
                client.zadd(key, dict(value))
            elif kind == "set":
                client.sadd(key, *map(raw, value))
            elif kind == "list":
                client.rpush(key, *map(raw, value))
            else:
                for entry, fields in value:
                    client.xadd(key, {name: raw(each) for name, each in fields.items()}, entry)


def main() -> int:
    """Records this version."""
    with tempfile.TemporaryDirectory() as folder:
        made = record(Path(folder))
    path = FOLDER / f"{made.version}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
    print(f"{path}: {len(made.redis)} keys")
    return 0


if __name__ == "__main__":
    sys.exit(main())
