"""Start the chosen backends, merge what they push, cancel losers.

The token path: a backend's push runs through here into the response writer in one synchronous
call, with no await, queue or task between.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from backends.contract import (
    Backend,
    BackendError,
    BackendInfo,
    Delta,
    Finish,
    FinishReason,
    GenerateRequest,
    Generation,
    ToolChoice,
    Usage,
)
from backends.prompt import prompt_size
from gateway.response import ResponseWriter
from router.decision import RankedRoute
from router.race import Cancel, End, Forward, merge

# A commentary is to be read while the deep answer is made: a paragraph, not an essay.
BRIEF_MAX_OUTPUT_TOKENS = 256
BRIEF_INSTRUCTIONS = (
    "Answer in one short paragraph, from what you know now. "
    "A thorough answer by another model follows yours."
)


class Outcome(msgspec.Struct, frozen=True):
    """How a run ended: `finish` is None where it was stopped from outside."""

    finish: Finish | None
    errors: tuple[BackendError, ...] = ()


class Pace(msgspec.Struct):
    """When a backend's tokens came, by its engine's time; and when the client saw the first."""

    backend: int
    first_at_us: int
    last_at_us: int
    seen_us: int = 0  # by the gateway's clock

    def tpot_us(self, usage: Usage) -> float | None:
        """Mean time between its tokens; None with fewer than two."""
        if usage.num_output_tokens < 2:
            return None
        return (self.last_at_us - self.first_at_us) / (usage.num_output_tokens - 1)


class Run:
    """One task's generations. `ended` resolves once; `close` may be called at any time."""

    def __init__(
        self, chosen: RankedRoute, writer: ResponseWriter, clock_us: Callable[[], int]
    ) -> None:
        self.ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.first: Pace | None = None  # of the backend whose token the client saw first
        self.answerer = len(chosen.backends) - 1  # whose words came last: the answer's
        self._clock_us = clock_us
        self._writer = writer
        self._chosen = chosen
        self._merge = merge(chosen.strategy)
        self._generations: list[Generation | None] = [None] * len(chosen.backends)
        self._usages: list[Usage | None] = [None] * len(chosen.backends)
        self._paces: list[Pace | None] = [None] * len(chosen.backends)

    def start(self, backends: Mapping[str, Backend], request: GenerateRequest) -> None:
        """Start every backend of the route; one that refuses counts as failed.

        Raises:
            BackendError: None would start.
        """
        names = self._chosen.backends
        num_refused = 0
        for index, name in enumerate(names):
            backend = backends[name]
            asked = branch_request(request, self._chosen, index, backend.info)
            try:
                self._generations[index] = backend.start(asked, _Branch(self, index))
            except BackendError as error:
                num_refused += 1
                if num_refused == len(names):
                    raise
                self._on_refused(index, error)

    def stop(self) -> None:
        """End from outside: a steer or a cancel. What was pushed so far stays."""
        self.close()
        if not self.ended.done():
            self.ended.set_result(Outcome(None))

    def break_off(self, error: Exception) -> None:
        """End for a fault of ours; whoever waits for the end gets it."""
        self.close()
        if not self.ended.done():
            self.ended.set_exception(error)

    def close(self) -> None:
        """Cancel whatever still generates, at once and synchronously."""
        for index, generation in enumerate(self._generations):
            if generation is not None and self._usages[index] is None:
                self._usages[index] = generation.cancel()

    @property
    def usages(self) -> list[Usage]:
        """What each backend used, in the route's order; whole after `close`."""
        return [usage or Usage() for usage in self._usages]

    def on_delta(self, index: int, delta: Delta) -> None:
        pace = self._paces[index]
        if pace is None:
            self._paces[index] = pace = Pace(index, delta.at_us, delta.at_us)
        pace.last_at_us = delta.at_us
        if self._merge.transparent:
            if self.first is None:
                self._see(index)
            self._writer.push(delta, None)
        else:
            self._act(index, self._merge.on_delta(index, delta))

    def _see(self, index: int) -> None:
        """The client gets its first token, from this backend."""
        self.first = self._paces[index]
        if self.first is not None:
            self.first.seen_us = self._clock_us()

    def on_finish(self, index: int, finish: Finish) -> None:
        self._usages[index] = finish.usage
        self._act(index, self._merge.on_finish(index, finish))

    def _on_refused(self, index: int, error: BackendError) -> None:
        failed = Finish(FinishReason.ERROR, Usage(), self._clock_us(), error)
        self.on_finish(index, failed)

    def _act(self, index: int, actions: list[Forward | Cancel | End]) -> None:
        for action in actions:
            if isinstance(action, Forward):
                if self.first is None:
                    self._see(action.backend)
                self.answerer = action.backend
                self._writer.push(action.delta, action.phase)
            elif isinstance(action, Cancel):
                generation = self._generations[action.backend]
                if generation is not None and self._usages[action.backend] is None:
                    self._usages[action.backend] = generation.cancel()
            elif not self.ended.done():
                self.ended.set_result(Outcome(action.finish, action.errors))


class _Branch:
    """The sink of one backend of a run."""

    __slots__ = ("_index", "_run")

    def __init__(self, run: Run, index: int) -> None:
        self._run = run
        self._index = index

    def push(self, delta: Delta) -> None:
        try:
            self._run.on_delta(self._index, delta)
        except Exception as error:  # a fault in one response must not reach its engine
            self._run.break_off(error)

    def finish(self, finish: Finish) -> None:
        try:
            self._run.on_finish(self._index, finish)
        except Exception as error:
            self._run.break_off(error)


def branch_request(
    request: GenerateRequest, chosen: RankedRoute, index: int, info: BackendInfo
) -> GenerateRequest:
    """What backend number `index` of a route is asked: no more than it can give.

    The commentary of `brief` is its own, shorter request: without tools, since only the final
    answer may act.
    """
    if len(chosen.backends) > 1:
        request = msgspec.structs.replace(request, id=f"{request.id}-{index}")
    if chosen.strategy == "brief" and index == 0:
        request = _brief(request)
    room_tokens = min(info.max_output_tokens, info.window_tokens - request.num_prompt_tokens)
    if request.max_output_tokens > room_tokens:
        request = msgspec.structs.replace(request, max_output_tokens=max(1, room_tokens))
    return request


def _brief(request: GenerateRequest) -> GenerateRequest:
    instructions = "\n\n".join(filter(None, (request.instructions, BRIEF_INSTRUCTIONS)))
    num_prompt_tokens, prefix = prompt_size(instructions, (), request.text_format, request.items)
    return msgspec.structs.replace(
        request,
        instructions=instructions,
        num_prompt_tokens=num_prompt_tokens,
        prefix=prefix,
        max_output_tokens=min(request.max_output_tokens, BRIEF_MAX_OUTPUT_TOKENS),
        tools=(),
        tool_choice=ToolChoice("none"),
        reasoning_effort=None,
        reasoning_summary=None,
    )
