"""Offers a backend that says one text, goes on with its first words, and breaks where told."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from backends.contract import (
    BackendError,
    BackendGroup,
    Delta,
    DeltaKind,
    Finish,
    FinishReason,
    GenerateRequest,
    Sink,
    Usage,
)
from tests.unit.gateway.doubles import RecordingBackend, RecordingGeneration

Fault = Literal["breaks", "stalls", "refuses"]

TEXT = "One, two, three, four, five, six, seven, eight, nine, ten, and so on to the end."
TOKENS = [f"{word} " for word in TEXT.split(" ")[:-1]] + ["end."]


class BreakingBackend(RecordingBackend):
    """Says `TEXT`, a token in each turn of the loop, after tokens that it reasons.

    `breaks_at` has, for each generation, the number of tokens after which it breaks; None and what
    comes later go on to the end.
    """

    def __init__(
        self,
        name: str,
        group: BackendGroup,
        *breaks_at: int | None,
        fault: Fault = "breaks",
        num_reasoning: int = 0,
        ends_in_call: bool = False,
        prefills: bool = True,
        model: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, group, **options)
        self._info = msgspec.structs.replace(
            self._info, prefills=prefills, model=model or self._info.model
        )
        self._breaks_at = list(breaks_at)
        self._fault = fault
        self._num_reasoning = num_reasoning
        self._ends_in_call = ends_in_call
        self.num_stalled = 0
        self.clock_us: Callable[[], int] = lambda: 0

    def start(self, request: GenerateRequest, sink: Sink) -> RecordingGeneration:
        generation = super().start(request, sink)
        breaks_at = self._breaks_at.pop(0) if self._breaks_at else None
        deltas = self._deltas(request)
        asyncio.get_running_loop().call_soon(self._play, generation, deltas, 0, breaks_at)
        return generation

    def _deltas(self, request: GenerateRequest) -> list[Delta]:
        reasoned = 0 if request.prefill else self._num_reasoning
        assert TEXT.startswith(request.prefill)
        rest, deltas = TEXT[len(request.prefill) :], []
        deltas = [Delta(0, DeltaKind.REASONING, "hm ", 1, 0) for _ in range(reasoned)]
        index = int(reasoned > 0)
        for token in TOKENS[len(TOKENS) - len(rest.split()) :] if rest else []:
            deltas.append(Delta(index, DeltaKind.TEXT, token, 1, 0))
        if self._ends_in_call:
            deltas += [
                Delta(index + 1, DeltaKind.FUNCTION_CALL, piece, 1, 0, "call_1", "look")
                for piece in ('{"at":', '"x"', "}")
            ]
        return deltas[: request.max_output_tokens]

    def _play(
        self, generation: RecordingGeneration, left: list[Delta], said: int, breaks_at: int | None
    ) -> None:
        if generation.num_cancels:
            return
        sink, request = generation.sink, generation.request
        usage = Usage(num_input_tokens=request.num_prompt_tokens, num_output_tokens=said)
        if said == breaks_at:
            if self._fault == "stalls":
                self.num_stalled += 1
                return
            error = BackendError(self.info.name, "server_error", "it broke off", retryable=True)
            if self._fault == "refuses":
                error = BackendError(self.info.name, "invalid_prompt", "not so", retryable=False)
            sink.finish(Finish(FinishReason.ERROR, usage, 0, error))
        elif not left:
            is_full = said >= request.max_output_tokens
            reason = FinishReason.LENGTH if is_full else FinishReason.STOP
            sink.finish(Finish(reason, usage, 0))
        else:
            sink.push(msgspec.structs.replace(left[0], at_us=self.clock_us()))
            loop = asyncio.get_running_loop()
            loop.call_soon(self._play, generation, left[1:], said + 1, breaks_at)
