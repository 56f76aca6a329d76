"""Tests what survives a Redis that is killed: with its append-only file, a snapshot, or nothing.

The table of docs/reliability.md says the same.
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.e2e.admin_api import ask, run_task
from tests.e2e.gateway_process import CONFIG, DEVELOPMENT_KEY, GatewayProcess, wait_until_at_rest
from tests.integration.redis_fleet import Server, eventually, running

LEDGER = "lw1:{ledger}:entries"
DOCUMENT = '[[rules]]\nname = "{}"\nroute = "deep"\n'
AOF, SNAPSHOT, NOTHING = ("--appendonly", "yes"), ("--save", "3600 1"), ()


class Written(NamedTuple):
    """Names one of everything that is kept in Redis."""

    response: str
    tenant: str
    policy: int


class Kept(NamedTuple):
    """Says what of it is still there."""

    response: bool
    in_ledger: bool
    tenant: bool
    policy: bool


ALL, GONE = Kept(*[True] * 4), Kept(*[False] * 4)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path, *AOF)
    with running(made):
        made.ask("PING")
        yield made


@pytest.fixture
def gateway(tmp_path: Path, server: Server) -> Iterator[GatewayProcess]:
    config = tmp_path / "lanewise.toml"
    config.write_text(CONFIG)
    process = GatewayProcess(
        tmp_path,
        *("--config", str(config), "--redis", f"redis://127.0.0.1:{server.port}"),
        environ={"LANEWISE_KEY_PEPPERS": "1:" + "ab" * 32},
    )
    process.wait_until_ready()
    yield process
    assert process.stop() == 0, process.log


def write(gateway: GatewayProcess, server: Server, name: str) -> Written:
    """Writes one of everything, and waits until all of it is in Redis."""
    make(gateway, "/admin/tenants", {"id": name, "tier": "enterprise"})
    stored = make(gateway, "/admin/policies", {"document": DOCUMENT.format(name)})
    made = Written(run_task(gateway), name, stored["version"])
    wait_until_at_rest(gateway)
    eventually(lambda: made.response in _ledger(server))
    eventually(lambda: server.ask("EXISTS", f"lw1:{{dev}}:r:{made.response}"))
    return made


def make(gateway: GatewayProcess, path: str, body: dict[str, str]) -> dict[str, Any]:
    """Returns what an admin is told, who tries again while Redis does not answer."""
    told: list[tuple[int, Any]] = []
    eventually(lambda: told.append(ask(gateway, "POST", path, body)) or told[-1][0] != 503)
    status, answer = told[-1]
    was_made = status == 409 and len(told) > 1  # by a call whose answer was lost
    assert status < 300 or was_made, told
    found: dict[str, Any] = answer
    return found


def _ledger(server: Server) -> set[str]:
    told = server.ask("XRANGE", LEDGER, "-", "+")
    return {msgspec.json.decode(pair[1][1])["task_id"] for pair in told}


def found(gateway: GatewayProcess, path: str, **how: str) -> bool:
    """Says whether it is there, once the gateway reaches Redis again."""
    told: list[int] = []
    eventually(lambda: told.append(ask(gateway, "GET", path, **how)[0]) or told[-1] < 500)
    assert told[-1] in (200, 404), told
    return told[-1] == 200


def kept(gateway: GatewayProcess, server: Server, made: Written) -> Kept:
    """Returns what a client, an admin and the ledger's reader find of it."""
    return Kept(
        found(gateway, f"/v1/responses/{made.response}", key=DEVELOPMENT_KEY),
        made.response in _ledger(server),
        found(gateway, f"/admin/tenants/{made.tenant}"),
        found(gateway, f"/admin/policies/{made.policy}"),
    )


def killed_and_started(server: Server, gateway: GatewayProcess, settings: tuple[str, ...]) -> None:
    """Returns once the gateway meets it again."""
    server.send(signal.SIGKILL)
    server._settings = settings
    server.start()
    server.ask("PING")
    eventually(lambda: not server.ask("INFO", "persistence").count("loading:1"))
    eventually(lambda: gateway.metrics().total("lanewise_ratelimit_degraded") == 0)


def test_what_survives(gateway: GatewayProcess, server: Server) -> None:
    first = write(gateway, server, "first")
    killed_and_started(server, gateway, AOF)
    assert kept(gateway, server, first) == ALL, "the append-only file"

    second = write(gateway, server, "second")
    server.ask("CONFIG", "SET", "appendonly", "no")
    server.ask("SAVE")
    third = write(gateway, server, "third")
    killed_and_started(server, gateway, SNAPSHOT)
    assert kept(gateway, server, first) == ALL
    assert kept(gateway, server, second) == ALL, "the snapshot"
    eventually(lambda: kept(gateway, server, third) == GONE)  # it reads tenants anew

    for path in server.folder.glob("*.rdb"):
        path.unlink()
    killed_and_started(server, gateway, NOTHING)
    # A gateway that runs knows the tenants that it knew; one that starts now does not.
    assert kept(gateway, server, first) == GONE._replace(tenant=True)
    fourth = write(gateway, server, "fourth")  # and it goes on with the configuration's tenants
    assert kept(gateway, server, fourth) == ALL
    assert int(server.ask("HGET", "lw1:{dev}:p:fast", "n")) == 0
