"""Tests when a worker begins to listen."""

import asyncio
from typing import Any, cast

from gateway.process.worker import engines_answer
from tests.patience import until


class Links:
    """Stands for the services of a worker with links to two engines and to an upstream."""

    own_engines = frozenset({"wafer", "gpu"})

    def __init__(self) -> None:
        self.down = ["wafer", "gpu", "upstream"]

    def backends_down(self) -> list[str]:
        return self.down


async def test_a_worker_waits_for_its_own_engines_and_for_no_others() -> None:
    links = Links()
    waiting = asyncio.create_task(engines_answer(cast("Any", links)))
    for up in ("wafer", "gpu"):
        await asyncio.sleep(0)
        assert not waiting.done()
        links.down.remove(up)
    await until(waiting.done)
