"""Lists the rooms of the house: every package, in import order, and what each may import.

A floor may import the floors to its right, and a room may import the rooms above it on its own
floor. A room holds the modules of its package and of the packages below it that have no row here; a
package right in a floor has one.
A module named `__main__` stands at the end of its floor: it starts things, and nobody imports it.
"""

from typing import NamedTuple


class Room(NamedTuple):
    """Names a package, and the packages of others that its modules may import."""

    name: str
    others: frozenset[str]


def _room(name: str, *others: str) -> Room:
    return Room(name, frozenset({"msgspec", *others}))


FLOORS = ("gateway", "router", "backends", "wafer_engine")  # each may import those to its right
CLIENT = "lanewise"  # the SDK: imports nothing of ours

# The clients come first: a room that imports them, as any application would, names them.
ROOMS = (
    _room("lanewise", "websockets"),
    _room("wafer_engine", "numpy"),
    _room("wafer_engine.batching"),
    _room("wafer_engine.hardware"),
    _room("wafer_engine.mesh", "numpy"),
    _room("wafer_engine.calibration", "numpy"),
    _room("backends", "numpy", "re2"),
    _room("backends.drive"),
    _room("backends.net", "websockets", "aiohappyeyeballs", "httptools"),
    _room("backends.gpu_engine"),
    _room("backends.gpu_engine.calibration", "numpy"),
    _room("backends.script.formats"),
    _room("backends.script"),
    _room("backends.simulated"),
    _room("backends.upstream.answer"),
    _room("backends.upstream", "websockets"),
    _room("backends.relay"),
    _room("backends.link", "websockets"),
    _room("router"),
    _room("router.redis", "redis", "hiredis"),
    _room("router.agent_runs"),
    _room("router.classify", "numpy"),
    _room("router.money"),
    _room("router.pools", "redis"),
    _room("router.waiting"),
    _room("router.strategies"),
    _room("router.policy", "redis"),
    _room("router.decide"),
    _room("router.learn", "numpy", "redis"),
    _room("router.record", "numpy"),
    _room("router.training", "numpy"),
    _room("router.backtest"),
    _room("router.planning", "numpy"),
    _room("router.comparison", "numpy"),
    _room("gateway"),
    _room("gateway.config"),
    _room("gateway.wire"),
    _room("gateway.chat"),
    _room("gateway.messages"),
    _room("gateway.tracing"),
    _room("gateway.transport", "httptools", "litestar", "uvicorn", "websockets"),
    _room("gateway.access", "redis"),
    _room("gateway.store", "redis"),
    _room("gateway.logs"),
    _room("gateway.metrics", "prometheus_client"),
    _room("gateway.fleet"),
    _room("gateway.core"),
    _room("gateway.live"),
    _room("gateway.run"),
    _room("gateway.task"),
    _room("gateway.rejoin", "redis"),
    _room("gateway.session"),
    _room("gateway.backtest"),
    _room("gateway.planning"),
    _room("gateway.http", "litestar", "redis"),
    _room("gateway.openapi", "litestar"),
    _room("gateway.console", "brotli", "litestar"),
    _room("gateway.admin", "litestar", "redis"),
    _room("gateway.process", "litestar", "redis", "uvicorn", "uvloop"),
    _room("gateway.doctor", "prometheus_client", "redis", "websockets"),
    _room("gateway.setup"),
    _room("gateway.dialogue", "lanewise", "prompt_toolkit", "rich"),
    _room("gateway.top", "rich"),
    _room("gateway.cli", "lanewise", "redis", "rich"),
    _room("gateway.cli.admin"),
)
