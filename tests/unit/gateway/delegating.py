"""Offers a fast engine that hands a sub-task on, and what comes of it."""

from typing import Any

from backends.contract import (
    Delta,
    DeltaKind,
    GenerateRequest,
    Sink,
)
from backends.delegation import DELEGATE_TOOL
from tests.unit.gateway.doubles import RecordingGeneration, stop, text
from tests.unit.gateway.playing_backend import PlayingBackend, Script
from tests.unit.gateway.world import World


def handing(task: str, index: int = 1) -> Delta:
    arguments = f'{{"task":"{task}"}}'
    return Delta(index, DeltaKind.FUNCTION_CALL, arguments, 5, 0, f"call_{index}", DELEGATE_TOOL)


OPENING: Script = [text("I hand it on."), handing("Prove it."), stop(10)]

MEANWHILE: Script = [text("Meanwhile."), stop(2)]

CLOSING: Script = [text("So it is."), stop(4)]

PROOF: Script = [text("By "), text("induction."), stop(20)]


class RoundsBackend(PlayingBackend):
    """Plays another script into each generation; the last one stays."""

    def __init__(self, *args: Any, rounds: list[Script], **options: Any) -> None:
        super().__init__(*args, [], **options)
        self.rounds = rounds

    def start(self, request: GenerateRequest, sink: Sink) -> RecordingGeneration:
        self.script = self.rounds[min(len(self.generations), len(self.rounds) - 1)]
        return super().start(request, sink)


def messages(world: World) -> list[tuple[str, str | None]]:
    return [
        (item["content"][0]["text"], item.get("phase"))
        for item in world.terminal["output"]
        if item["type"] == "message"
    ]


def summaries(world: World) -> list[str]:
    """Returns what was said beside the answer."""
    return [
        item["summary"][0]["text"]
        for item in world.terminal["output"]
        if item["type"] == "reasoning"
    ]
