"""Holds the backends of a process, which change while it runs: removed ones end what they do first.

This is an edge.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from backends.contract import Backend, BackendStats
from gateway.config.backend_kinds import BackendConfig, SimulatedConfig
from gateway.config.sections import ConfigError
from router.record.recording import EngineSettings
from router.redis.cancelling import cancelled

logger = logging.getLogger("lanewise")

DRAIN_CHECK_S = 0.5
DRAIN_GRACE_S = 2.0  # for tasks that had chosen the backend and are about to start there
DRAIN_LIMIT_S = 3600.0  # then what still runs fails
JOIN_CHECK_S = 0.05
JOIN_LIMIT_S = 3.0  # for new backends to be up before they replace others; then they do so anyway


class Made(NamedTuple):
    """Pairs a backend with the configuration that it was made from."""

    config: BackendConfig
    secrets: tuple[str, ...]  # that the configuration only names
    backend: Backend


IsFree = Callable[[Backend], bool]  # whether nothing runs there any more


def marked(stats: Iterable[BackendStats], drained: Collection[str]) -> list[BackendStats]:
    """Returns the stats, those of drained backends marked as such."""
    return [
        msgspec.structs.replace(each, drained=True) if each.info.name in drained else each
        for each in stats
    ]


class Backends(dict[str, Backend]):
    """Finds backends by name; a removed one is not listed, but is found by who still runs there."""

    def __init__(self, configs: Iterable[BackendConfig]) -> None:
        """Makes the backends; needs a running event loop.

        Raises `ConfigError` if one cannot be made as configured.
        """
        super().__init__()
        self._made: dict[str, Made] = {}
        self._removed: dict[str, Backend] = {}  # the latest of each name
        self._drains: dict[asyncio.Task[None], Backend] = {}
        self.drained: Collection[str] = ()  # names that an admin lets have no new tasks
        self._list(self.prepared(configs))

    def __missing__(self, name: str) -> Backend:
        return self._removed[name]

    def _list(self, made: dict[str, Made]) -> None:
        self._made = made
        self.clear()
        self.update({name: each.backend for name, each in made.items()})

    def stats(self) -> list[BackendStats]:
        """Returns the current stats of all."""
        stats = [backend.stats() for backend in self.values()]
        return marked(stats, self.drained) if self.drained else stats

    def settings(self, shared: Iterable[SimulatedConfig] = ()) -> tuple[EngineSettings, ...]:
        """Returns how each is configured, for the decision log; of servers, only what they are.

        `shared` are those that another process of this machine runs, to which there are links.
        """
        elsewhere = {config.name: config for config in shared}
        return tuple(
            _settings(elsewhere.get(name, made.config), made.backend)
            for name, made in self._made.items()
        )

    def prepared(self, configs: Iterable[BackendConfig]) -> dict[str, Made]:
        """Makes the backends that are new or configured otherwise; the others go on.

        Raises `ConfigError` if one cannot be made; then none is.
        """
        prepared: dict[str, Made] = {}
        for config in configs:
            known = self._made.get(config.name)
            try:
                secrets = config.secrets()
                if known is not None and (known.config, known.secrets) == (config, secrets):
                    prepared[config.name] = known
                else:
                    prepared[config.name] = Made(config, secrets, config.make())
            except (OSError, ValueError) as error:
                self.discard(prepared)
                raise ConfigError(f"backends.{config.name}: {error}") from error
        return prepared

    async def up(self, prepared: Mapping[str, Made]) -> None:
        """Returns once the new ones of the prepared backends are up, or at the limit.

        So none is missed while it connects. Cancelling it discards them.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + JOIN_LIMIT_S
        new = [made.backend for name, made in prepared.items() if self._made.get(name) is not made]
        try:
            while loop.time() < until_s and not all(one.stats().healthy for one in new):  # noqa: ASYNC110
                await asyncio.sleep(JOIN_CHECK_S)
        except asyncio.CancelledError:
            self.discard(prepared)
            raise

    def discard(self, prepared: Mapping[str, Made]) -> None:
        """Closes what was prepared and will not be used."""
        for name, made in prepared.items():
            if self._made.get(name) is not made:
                self._end(made.backend, lambda _: True)

    def replace(self, prepared: dict[str, Made], is_free: IsFree) -> None:
        """Goes on with the prepared backends; removed ones are closed once they are free."""
        for name, made in self._made.items():
            if prepared.get(name) is not made:
                logger.info("backend %s takes no new tasks", name)
                self._removed[name] = made.backend
                self._end(made.backend, is_free)
        for name in prepared.keys() - self._made.keys():
            logger.info("backend %s takes tasks", name)
        self._list(prepared)

    def _end(self, backend: Backend, is_free: IsFree) -> None:
        drain = asyncio.create_task(_drained(backend, is_free))
        self._drains[drain] = backend
        drain.add_done_callback(lambda ended: self._drains.pop(ended, None))

    async def close(self) -> None:
        """Closes all, also those that are still being drained."""
        draining = dict(self._drains)
        await cancelled(*draining)
        for backend in (*draining.values(), *self.values()):
            await backend.close()


def _settings(config: BackendConfig, backend: Backend) -> EngineSettings:
    is_simulated = isinstance(config, SimulatedConfig)
    options = msgspec.to_builtins(config.options) if is_simulated else {}
    kind = str(config.__struct_config__.tag)
    return EngineSettings(config.name, kind, backend.info, options)


async def _drained(backend: Backend, is_free: IsFree) -> None:
    """Closes a backend once it is free, or at the limit."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while (lasted_s := loop.time() - began_s) < DRAIN_LIMIT_S:
        if is_free(backend) and lasted_s >= DRAIN_GRACE_S:
            break
        await asyncio.sleep(DRAIN_CHECK_S)
    await backend.close()
