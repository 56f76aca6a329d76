"""Offers backends that play a script: deltas and their end, a piece in each turn of the loop."""

import asyncio
from typing import Any

from backends.contract import (
    BackendGroup,
    Delta,
    Finish,
    GenerateRequest,
    Sink,
)
from tests.unit.gateway.doubles import (
    RecordingBackend,
    RecordingGeneration,
    stop,
    text,
)

Script = list[Delta | Finish]

ANSWER: Script = [text("It "), text("is."), stop(5)]


class PlayingBackend(RecordingBackend):
    """Plays a script into each generation, one piece per turn of the loop, until cancelled."""

    def __init__(self, name: str, group: BackendGroup, script: Script, **options: Any) -> None:
        super().__init__(name, group, **options)
        self.script = script

    def start(self, request: GenerateRequest, sink: Sink) -> RecordingGeneration:
        generation = super().start(request, sink)
        self._play(generation, list(self.script), at_once=False)
        return generation

    def _play(self, generation: RecordingGeneration, left: Script, *, at_once: bool = True) -> None:
        if at_once and generation.num_cancels == 0 and left:
            piece = left.pop(0)
            if isinstance(piece, Finish):
                generation.sink.finish(piece)
            else:
                generation.sink.push(piece)
        if left and generation.num_cancels == 0:
            asyncio.get_running_loop().call_soon(lambda: self._play(generation, left))
