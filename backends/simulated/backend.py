"""Serves a simulated engine as a `Backend`: a script decides the output, the engine its timing.

The wafer and the GPU differ only in their cost models; the output depends on the request and the
script alone. This is an edge.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count as counter
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from backends.configuration import BackendOptions
from backends.contract import (
    BackendError,
    BackendInfo,
    BackendStats,
    EngineTimes,
    Finish,
    FinishReason,
    GenerateRequest,
    Generation,
    Sink,
    Usage,
)
from backends.drive.driver import Driver
from backends.prompt import end_prefix, overflow_words
from backends.script.answering import answer_script
from backends.script.continuing import rest_of, whole_request
from backends.script.fixed_length import lengthened
from backends.script.replay import echo_script, replay_script
from backends.script.scripted_answer import Script, ScriptedAnswer
from backends.script.work import TooMuchWorkError
from backends.simulated.playback import Playback
from backends.simulated.predicted import prediction_of
from wafer_engine.batching.cost_model import CostModel
from wafer_engine.batching.engine import Engine
from wafer_engine.batching.sequence import Sequence

MAX_RECORDING_BYTES = 64 << 20  # of a replay file
MAX_WARMING = 8  # warm-ups at once; more are refused
NOTHING = ScriptedAnswer(())  # the output of a warm-up


class SimulatedOptions(BackendOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds a simulated backend's script, its limits, and what any machine's speed depends on."""

    script: Literal["answer", "echo", "replay"] = "answer"
    replay_path: str | None = None  # a recorded transcript, for "replay"; see script/replay.py
    seed: int = 0  # for requests without one
    max_num_waiting: int = 4_096  # sequences not yet running; more are refused
    attention_window_tokens: int | None = None  # sparse attention; all KV cache is kept
    takes_predictions: bool = True
    # The chance that a predicted token is accepted; None: where it is what the answer says.
    prediction_acceptance: Annotated[float, Meta(ge=0, le=1)] | None = None
    # Published services add a network and a front end (109 ms); here the real ones are in front.
    overhead_us: float | None = 0.0


_OF_MACHINE = {"attention_window_tokens", "overhead_us"}
_OF_SERVICE = {*SimulatedOptions.__struct_fields__, "accepts_images"} - _OF_MACHINE


class SimulatedBackend:
    """Runs one engine with its driver and its script. Satisfies `backends.contract.Backend`."""

    def __init__(
        self,
        info: BackendInfo,
        cost: CostModel,
        options: SimulatedOptions,
        *,
        clock_us: Callable[[], int] | None = None,
        power_w: float = 0.0,
    ) -> None:
        """Needs a running event loop; `clock_us` is the driver's, `power_w` the machine's.

        Raises OSError if the script is a replay whose recording cannot be read, and ValueError if
        that is none.
        """
        self.info = in_cache(info, cost)
        self._script = _load_script(options, reasons=info.group == "deep")
        self._limits = cost.limits
        self._max_num_waiting = options.max_num_waiting
        self._seed = options.seed
        self._acceptance = options.prediction_acceptance
        self._driver = Driver(Engine(cost), clock_us=clock_us)
        self._ids = counter(1)
        self._power_w = power_w

    def start(self, request: GenerateRequest, sink: Sink) -> Generation:
        """Starts as `Backend.start` says; a warm-up is a generation without output."""
        arrived_us = self._driver.now_us()  # writing the script is not the engine's time
        self._check(request)
        playback = self._playback(request) if request.generate else Playback(NOTHING, 0)
        # Words of another engine have no place among the prefixes.
        said = None if request.prefill else playback.prompt_items()
        prediction = None
        if self.info.takes_predictions:
            prediction = prediction_of(request, playback, self._acceptance, self._seed)
        sequence = Sequence(
            id=next(self._ids),
            num_prompt_tokens=max(request.num_prompt_tokens, 1),
            num_output_tokens=playback.num_tokens if request.generate else 0,
            prefix=request.prefix,
            end_prefix=end_prefix(request.prefix, said, request.cache_salt) if said else None,
            prediction=prediction,
        )
        generation = SimulatedGeneration(
            self._driver,
            self.info.name,
            self._power_w,
            sequence,
            request.num_prompt_tokens,
            playback,
            sink,
        )
        self._driver.submit(sequence, generation, arrived_us)
        return generation

    def _playback(self, request: GenerateRequest) -> Playback:
        room = self.info.window_tokens - (request.num_prompt_tokens or 1)
        limit = max(1, min(request.max_output_tokens, self.info.max_output_tokens, room))
        bounded = request
        if request.prefill:
            bounded = whole_request(request, limit)
        elif limit != request.max_output_tokens:
            bounded = msgspec.structs.replace(request, max_output_tokens=limit)
        try:
            answer = self._script(bounded)
        except TooMuchWorkError as error:
            raise self._error(
                "invalid_value", str(error), retryable=False, param=error.param
            ) from error
        if request.extras.min_tokens or request.extras.ignore_eos:
            answer = lengthened(answer, bounded)
        if request.prefill:
            answer = rest_of(answer, request.prefill)
        return Playback(answer, limit, request.stop)

    def stats(self) -> BackendStats:
        stats = self._driver.stats()
        return BackendStats(
            info=self.info,
            healthy=self._driver.is_open,
            num_running=stats.num_running,
            num_waiting=stats.num_waiting,
            num_warming=stats.num_warming,
            max_num_seqs=self._limits.max_num_seqs,
            kv_used_tokens=stats.kv_used_tokens,
            kv_capacity_tokens=stats.kv_capacity_tokens,
            num_generated_tokens=stats.num_generated_tokens,
            num_prompt_tokens=stats.num_prompt_tokens,
            num_cached_tokens=stats.num_cached_tokens,
            power_w=self._power_w,
            busy_us=stats.busy_us,
        )

    async def close(self) -> None:
        """Closes at once: cancelling it has no effect."""
        self._driver.close("the engine is shutting down")

    def _check(self, request: GenerateRequest) -> None:
        """Refuses a request that the engine cannot take, or a warm-up while the engine is busy."""
        if not self._driver.is_open:
            raise self._error("server_error", "the engine is closed")
        if self._driver.num_waiting >= self._max_num_waiting:
            message = f"{self._max_num_waiting} generations are waiting already"
            raise self._error("server_is_overloaded", message)
        if request.num_prompt_tokens >= self.info.window_tokens:
            message = overflow_words(request.num_prompt_tokens, self.info.window_tokens)
            raise self._error("context_length_exceeded", message, retryable=False)
        if not request.generate:
            stats = self._driver.stats()
            is_full = stats.num_running >= self._limits.max_num_seqs or stats.num_waiting > 0
            if is_full or stats.num_warming >= MAX_WARMING:
                message = "the engine has no place to spare for a warm-up"
                raise self._error("server_is_overloaded", message)

    def _error(
        self, code: str, message: str, *, retryable: bool = True, param: str | None = None
    ) -> BackendError:
        return BackendError(self.info.name, code, message, retryable=retryable, param=param)


@dataclass(slots=True, eq=False)
class SimulatedGeneration:
    """Turns the driver's tokens into deltas for the sink."""

    _driver: Driver
    _backend: str
    _power_w: float
    _sequence: Sequence
    _num_prompt_tokens: int  # the engine's own count is at least 1
    _playback: Playback
    _sink: Sink
    _num_tokens: int = 0
    _is_live: bool = True

    def cancel(self, *, is_silent: bool = False) -> Usage:
        """Stops the generation; the part of the prompt computed so far stays in the cache."""
        if self._is_live:
            self._is_live = False
            self._driver.cancel(self._sequence.id)
            self._num_tokens = self._sequence.num_generated  # all, if the engine had finished
        return self._usage()

    def pause(self) -> bool:
        return False  # the batch goes on

    def resume(self) -> None:
        pass  # it never pauses

    def advance(self, num_tokens: int, at_us: int) -> None:
        self._num_tokens += num_tokens
        for delta in self._playback.take(num_tokens, at_us):
            self._sink.push(delta)
            if not self._is_live:
                return  # the sink cancelled

    def finish(self, at_us: int) -> None:
        self._is_live = False
        playback = self._playback
        sequence = self._sequence
        times = EngineTimes(
            sequence.scheduled_us - sequence.arrived_us,
            sequence.first_token_us - sequence.scheduled_us,
            at_us - sequence.first_token_us,
        )
        usage, stop = self._usage(), playback.stop_sequence
        finish = Finish(playback.reason, usage, at_us, None, stop, times)
        self._sink.finish(finish)

    def fail(self, message: str, at_us: int) -> None:
        self._is_live = False
        error = BackendError(self._backend, "server_error", message, retryable=True)
        self._sink.finish(Finish(FinishReason.ERROR, self._usage(), at_us, error))

    def _usage(self) -> Usage:
        sequence = self._sequence
        if sequence.is_warm_up:
            num_held = min(sequence.num_computed, self._num_prompt_tokens)
            return Usage(num_held, min(sequence.num_cached_tokens, num_held))
        prediction = sequence.prediction
        num_rejected = 0 if prediction is None else prediction.num_rejected
        return Usage(
            num_input_tokens=sequence.num_prompt_tokens,
            num_cached_tokens=sequence.num_cached_tokens,
            num_output_tokens=self._num_tokens + num_rejected,
            num_reasoning_tokens=self._playback.num_reasoning_taken(self._num_tokens),
            num_accepted_tokens=0 if prediction is None else prediction.num_accepted,
            num_rejected_tokens=num_rejected,
            energy_uj=round(self._power_w * max(0.0, sequence.share_us)),
        )


def in_cache(info: BackendInfo, cost: CostModel) -> BackendInfo:
    """Returns what a simulated backend is, whose window is no longer than its KV cache."""
    block_tokens = cost.limits.kv_block_tokens
    capacity_tokens = cost.limits.kv_capacity_tokens // block_tokens * block_tokens
    window_tokens = min(info.window_tokens, capacity_tokens)
    return msgspec.structs.replace(info, window_tokens=window_tokens, prefills=True)


def machine_options(options: SimulatedOptions) -> dict[str, Any]:
    """Returns the options that are parameters of the machine's cost model.

    Raises ValueError if the attention window is wider than the context window.
    """
    attention_tokens = options.attention_window_tokens
    if (attention_tokens or 0) > options.window_tokens:
        raise ValueError(
            f"attention_window_tokens {attention_tokens:,}: no context reaches it, "
            f"window_tokens is {options.window_tokens:,}"
        )
    return {
        name: getattr(options, name)
        for name in options.__struct_fields__
        if name not in _OF_SERVICE
    }


def _load_script(options: SimulatedOptions, *, reasons: bool) -> Script:
    if options.script == "echo":
        return echo_script
    if options.script == "answer":
        return answer_script(options.seed, reasons=reasons)
    if options.replay_path is None:
        raise ValueError('script "replay" needs a replay_path')
    path = Path(options.replay_path)
    if path.stat().st_size > MAX_RECORDING_BYTES:
        raise ValueError(f"{path} is larger than {MAX_RECORDING_BYTES} bytes")
    return replay_script(path.read_bytes())
