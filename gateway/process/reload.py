"""Takes over a changed configuration while the gateway runs: all of it, or nothing.

SIGHUP asks for it. This is an edge.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from backends.contract import Backend
from gateway.config.certificate import expires_s, load_certificate, tls_context
from gateway.config.changes import config_change, fault_of_change
from gateway.config.command_error import CommandError
from gateway.config.config import Config, check_config
from gateway.config.policy_file import load_policy
from gateway.http.services import Services
from gateway.process.service_manager import READY, notify, notify_reloading
from router.redis.cancelling import cancelled

logger = logging.getLogger("lanewise")

Load = Callable[[], Config]  # reads the configuration again; raises `CommandError`


class Hangups:
    """Reloads upon each SIGHUP, once at a time; those that come meanwhile are one more."""

    def __init__(self, reload: Callable[[], Awaitable[None]]) -> None:
        self._reload = reload
        self._is_due = False
        self._running: asyncio.Task[None] | None = None

    def notice(self) -> None:
        """Handles the signal."""
        self._is_due = True
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._is_due:
            self._is_due = False
            notify_reloading()
            try:
                await self._reload()
            except CommandError as error:
                logger.error("the configuration stays as it was: %s", error)
            except Exception:
                logger.exception("the configuration could not be read again")
            finally:
                notify(READY)

    async def stop(self) -> None:
        """Ends a reload under way."""
        if self._running is not None:
            await cancelled(self._running)


def changed(running: Config, load: Load) -> Config:
    """Returns what a gateway that runs with one configuration goes on with, after reading it again.

    The log names what needs a restart. Raises `CommandError` if the new one is wrong.
    """
    wanted = load()
    if (fault := fault_of_change(running, wanted)) is not None:
        raise CommandError(fault)
    found = config_change(running, wanted)
    # Keys that are good enough on the address of the file may not be on the one that is in use.
    check_config(found.config)
    load_policy(found.config)
    tls_context(found.config.server)
    if found.kept:
        logger.warning(
            "these settings keep their value until the gateway is started again: %s",
            ", ".join(found.kept),
        )
    return found.config


async def apply(made: Services, config: Config) -> None:
    """Goes on with a configuration that `changed` returned.

    Raises `CommandError` if some of it cannot be used; then nothing has changed.
    """
    try:
        policy = await asyncio.to_thread(load_policy, config)
        certificate_expires_s = await asyncio.to_thread(expires_s, config.server)
        backends = made.backends.prepared(config.backends)
    except CommandError:
        made.gw.metrics.config_reload("invalid")
        raise
    await made.backends.up(backends)
    # From here nothing fails and nothing waits, so that no task sees one part without another.
    made.backends.replace(backends, _after_those_of_now(made))
    made.policies.configure(policy)
    made.configure(config)
    if made.tls is not None:
        load_certificate(made.tls, config.server)  # for new connections
        made.gw.metrics.reports.certificate_expires_s = certificate_expires_s
    made.gw.metrics.config_reload("ok")
    logger.info("the configuration was read again, and is in force")


def _after_those_of_now(made: Services) -> Callable[[Backend], bool]:
    """Returns whether the tasks that run now have ended, wherever they run."""
    running = frozenset(made.gw.in_use)
    return lambda _: running.isdisjoint(made.gw.in_use)
