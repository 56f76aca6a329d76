"""Offers a long conversation whose next turn is compacted first."""

import asyncio
from typing import Any

from backends.contract import (
    GenerateRequest,
    Message,
    Sink,
    Usage,
)
from backends.prompt import measure, parts_text
from gateway.core.job import Ended
from gateway.store.stored_response import Lineage
from gateway.task.pipeline import handle_task
from gateway.wire.compaction import INSTRUCTIONS
from gateway.wire.response import Ending
from tests.patience import until
from tests.unit.gateway.conversations import RULES, turns
from tests.unit.gateway.doubles import (
    RecordingBackend,
    RecordingGeneration,
    stop,
    text,
)
from tests.unit.gateway.playing_backend import ANSWER, PlayingBackend, Script
from tests.unit.gateway.world import World

SUMMARY: Script = [text("What was "), text("said."), stop(40, 3_000)]

COMPACTING: Any = [{"type": "compaction", "compact_threshold": 2_000}]


class SummarizingBackend(PlayingBackend):
    """Plays one script where it is asked for a summary, another where it is asked to answer."""

    def __init__(self, name: str, group: Any, summary: Script = SUMMARY, **options: Any) -> None:
        super().__init__(name, group, ANSWER, **options)
        self.summary = summary

    def start(self, request: GenerateRequest, sink: Sink) -> RecordingGeneration:
        self.script = self.summary if is_summary(request) else ANSWER
        return super().start(request, sink)


def is_summary(request: GenerateRequest) -> bool:
    last = request.items[-1].item
    return isinstance(last, Message) and parts_text(last.content) == INSTRUCTIONS


def parent() -> Ended:
    """Returns a conversation long enough to be compacted."""
    context = tuple(measure(item) for item in (RULES, *turns(2_500, 300)))
    lineage = Lineage(("resp_stored",), len(context))
    ending = Ending(status="completed", usage=Usage())
    return Ended(ending=ending, items=context, backend="wafer", lineage=lineage)


def world_of(summary: Script = SUMMARY, **options: Any) -> World:
    world = World()
    world.fast = SummarizingBackend("wafer", "fast", summary, **options)
    world.deep = SummarizingBackend("gpu", "deep", summary)
    world.gw.backends = {"wafer": world.fast, "gpu": world.deep}
    return world


async def run(world: World, route: str = "fast", **fields: Any) -> Ended | None:
    """Runs the conversation's next turn."""
    metadata = {"route": route} | fields.pop("metadata", {})
    fields = {"context_management": COMPACTING, "metadata": metadata} | fields
    ended = await handle_task(world.gw, world.job(parent=parent(), **fields))
    await world.check()
    return ended


async def held(*, route: str = "fast") -> tuple[World, RecordingBackend, Any, "asyncio.Task[Any]"]:
    """Returns a world whose summary is being written, by a test's hand."""
    world = World()
    backend = RecordingBackend("wafer", "fast", used=Usage(2_000, 0, 9))
    world.gw.backends = {"wafer": backend}
    metadata = {"route": route}
    job = world.job(parent=parent(), context_management=COMPACTING, metadata=metadata)
    pump = asyncio.create_task(handle_task(world.gw, job))
    await until(lambda: len(backend.generations) == 1)
    backend.only.sink.push(text("What was"))
    return world, backend, job, pump
