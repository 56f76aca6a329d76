"""Defines the frames of the engine link: msgpack arrays, one per WebSocket message.

A gateway sends `Start` and `Cancel`; an engine sends `Hello` once and then `Step`s. One `Step`
carries the output of all of the connection's generations since the one before: columns, not an
object per token. `VERSION` changes with any of them; a peer of another version is refused.
"""

import msgspec

from backends.contract import (
    BackendError,
    BackendInfo,
    BackendStats,
    Delta,
    DeltaKind,
    EngineTimes,
    Finish,
    FinishReason,
    GenerateRequest,
    Usage,
)

# 2: sealed reasoning and phases; 3: warm-ups; 4: extras, stop sequences; 5: an engine's times
VERSION = 5
MAX_FRAME_BYTES = 64 << 20


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """Is the engine's first frame."""

    version: int
    now_us: int  # of the engine's clock, at sending
    info: BackendInfo
    stats: BackendStats


class Start(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """Starts a generation; `key` names it on this connection."""

    key: int
    request: GenerateRequest


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """Cancels a generation: nothing more comes for its key."""

    key: int


class End(msgspec.Struct, frozen=True, array_like=True):
    """Finishes a generation."""

    key: int
    reason: FinishReason
    usage: Usage
    at_us: int
    code: str = ""  # of an error
    message: str = ""
    retryable: bool = False
    param: str | None = None
    stop_sequence: str | None = None
    times: EngineTimes | None = None


class Step(msgspec.Struct, frozen=True, array_like=True, tag="step"):
    """Holds the output since the last step: row i of the columns is one delta; ends follow them."""

    keys: list[int]
    indexes: list[int]
    kinds: list[int]
    texts: list[str]
    num_tokens: list[int]
    at_us: list[int]
    calls: dict[int, tuple[str, str]]  # row -> call_id and name, for calls
    ends: list[End]
    stats: BackendStats | None = None
    sealed: dict[int, str] = {}  # row -> encrypted content, if its reasoning has any
    phases: dict[int, str] = {}  # row -> phase, if its message has one

    def with_more(self, row: int, delta: Delta) -> Delta:
        """Adds the fields that few rows have to a row's delta."""
        call_id, name = self.calls.get(row, ("", ""))
        return msgspec.structs.replace(
            delta,
            call_id=call_id,
            name=name,
            sealed=self.sealed.get(row, ""),
            phase=self.phases.get(row, ""),
        )


EngineFrame = Hello | Step
GatewayFrame = Start | Cancel

_encoder = msgspec.msgpack.Encoder()
engine_frames: msgspec.msgpack.Decoder[EngineFrame] = msgspec.msgpack.Decoder(EngineFrame)
gateway_frames: msgspec.msgpack.Decoder[GatewayFrame] = msgspec.msgpack.Decoder(GatewayFrame)


def encode(frame: EngineFrame | GatewayFrame) -> bytes:
    """Encodes a frame as a binary message."""
    return _encoder.encode(frame)


class StepBuilder:
    """Collects deltas and ends for the next `Step`.

    Text that continues its generation's last row is appended to it, so a slow reader makes rows
    longer, not more numerous.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[int, Delta]] = []
        self._last_row: dict[int, int] = {}  # key -> its last row
        self._ends: list[End] = []

    def add(self, key: int, delta: Delta) -> None:
        """Appends a delta, or joins it to the one before."""
        row = self._last_row.get(key)
        if row is not None and (last := self._rows[row][1]).index == delta.index:
            joined = msgspec.structs.replace(
                delta,
                text=last.text + delta.text,
                num_tokens=last.num_tokens + delta.num_tokens,
                sealed=delta.sealed or last.sealed,
            )
            self._rows[row] = (key, joined)
        else:
            self._last_row[key] = len(self._rows)
            self._rows.append((key, delta))

    def end(self, key: int, finish: Finish) -> None:
        error = finish.error
        said = (error.code, error.message, error.retryable, error.param) if error else ()
        end = End(key, finish.reason, finish.usage, finish.at_us, *said)
        if finish.stop_sequence is not None or finish.times is not None:
            end = msgspec.structs.replace(
                end, stop_sequence=finish.stop_sequence, times=finish.times
            )
        self._ends.append(end)

    def forget(self, key: int) -> None:
        if key in self._last_row:
            self._rows = [(owner, delta) for owner, delta in self._rows if owner != key]
            self._last_row = {owner: row for row, (owner, _) in enumerate(self._rows)}
        self._ends = [end for end in self._ends if end.key != key]

    def take(self, stats: BackendStats | None) -> Step | None:
        """Returns the step so far and begins the next; None if there is nothing in it."""
        if not self._rows and not self._ends and stats is None:
            return None
        rows, ends = self._rows, self._ends
        self._rows, self._last_row, self._ends = [], {}, []
        return Step(
            keys=[key for key, _ in rows],
            indexes=[delta.index for _, delta in rows],
            kinds=[delta.kind for _, delta in rows],
            texts=[delta.text for _, delta in rows],
            num_tokens=[delta.num_tokens for _, delta in rows],
            at_us=[delta.at_us for _, delta in rows],
            calls={
                row: (delta.call_id, delta.name)
                for row, (_, delta) in enumerate(rows)
                if delta.kind >= DeltaKind.FUNCTION_CALL
            },
            ends=ends,
            stats=stats,
            sealed={row: delta.sealed for row, (_, delta) in enumerate(rows) if delta.sealed},
            phases={row: delta.phase for row, (_, delta) in enumerate(rows) if delta.phase},
        )


def finish_of(end: End, backend: str, offset_us: int) -> Finish:
    """Converts an end to a `Finish` on the gateway's clock."""
    error = None
    if end.reason is FinishReason.ERROR:
        error = BackendError(
            backend, end.code, end.message, retryable=end.retryable, param=end.param
        )
    at_us = end.at_us + offset_us
    return Finish(end.reason, end.usage, at_us, error, end.stop_sequence, end.times)
