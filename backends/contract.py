"""What goes into and comes out of any backend.

A backend turns a `GenerateRequest` into output items. It pushes `Delta`s and one `Finish` into a
`Sink`, synchronously: between an engine's step and the socket there is no await and no queue.
"""

import enum
from typing import Any, Literal, Protocol

import msgspec

Role = Literal["user", "assistant", "system", "developer"]


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """A piece of text inside a message or a tool's output."""

    text: str


class RefusalPart(msgspec.Struct, frozen=True, tag="refusal"):
    """What the assistant declined to do, in its own words."""

    refusal: str


class ImagePart(msgspec.Struct, frozen=True, tag="image"):
    """An image, by address (a data URL included) or by file id; never fetched by us."""

    image_url: str | None = None
    file_id: str | None = None
    detail: str = "auto"


class FilePart(msgspec.Struct, frozen=True, tag="file"):
    """A file the client attached; passed through to engines that take files."""

    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None
    file_data: str | None = None


Part = TextPart | RefusalPart | ImagePart | FilePart


class Message(msgspec.Struct, frozen=True, tag="message"):
    """One message of the conversation."""

    role: Role
    content: tuple[Part, ...]
    id: str | None = None
    phase: str | None = None  # "commentary" or "final_answer" on assistant messages


class FunctionCall(msgspec.Struct, frozen=True, tag="function_call"):
    """The model's call of a client's function."""

    call_id: str
    name: str
    arguments: str  # JSON text
    id: str | None = None
    namespace: str | None = None


class FunctionCallOutput(msgspec.Struct, frozen=True, tag="function_call_output"):
    """What the client's function answered."""

    call_id: str
    output: tuple[Part, ...]
    id: str | None = None


class CustomToolCall(msgspec.Struct, frozen=True, tag="custom_tool_call"):
    """The model's call of a free-form tool."""

    call_id: str
    name: str
    input: str
    id: str | None = None


class CustomToolCallOutput(msgspec.Struct, frozen=True, tag="custom_tool_call_output"):
    """What the client's free-form tool answered."""

    call_id: str
    output: tuple[Part, ...]
    id: str | None = None


class Reasoning(msgspec.Struct, frozen=True, tag="reasoning"):
    """A reasoning item, replayed by clients as they got it; its encrypted content is opaque."""

    id: str | None = None
    summary: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    encrypted_content: str | None = None


class Compaction(msgspec.Struct, frozen=True, tag="compaction"):
    """An earlier part of the conversation, folded by a compaction."""

    encrypted_content: str
    id: str | None = None
    summary: str | None = None  # what it says, opened; None: another server sealed it
    number: int = 0  # how many automatic ones its conversation has had by then


Item = (
    Message
    | FunctionCall
    | FunctionCallOutput
    | CustomToolCall
    | CustomToolCallOutput
    | Reasoning
    | Compaction
)


class ContextItem(msgspec.Struct, frozen=True):
    """An item with what is worth computing only once: its size and its identity.

    `backends.prompt.measure` makes them; contexts of one conversation share them.
    """

    item: Item
    num_tokens: int
    digest: int  # 64-bit hash of the rendered item; equal items have equal digests


class FunctionTool(msgspec.Struct, frozen=True, tag="function"):
    """A function the client offers; `parameters` is its JSON schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    strict: bool = False
    namespace: str | None = None


class CustomTool(msgspec.Struct, frozen=True, tag="custom"):
    """A free-form tool; `format` is its grammar, where the client gave one."""

    name: str
    description: str = ""
    format: dict[str, Any] | None = None


Tool = FunctionTool | CustomTool


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether the model may, must or must not call a tool, and which (empty `names`: any)."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()


class TextFormat(msgspec.Struct, frozen=True):
    """The form the answer must have; the rest only for `json_schema`."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    schema: dict[str, Any] | None = None
    name: str = "answer"
    strict: bool | None = None  # None: whatever the engine does by default


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One generation, whole: a backend needs nothing else.

    The prompt is `instructions`, then `tools`, then `items`, rendered by `backends.prompt`. A
    warm-up (`generate` false) only prepares for one like it: the prompt is computed and kept, or as
    much of that as the backend can do. Nothing is pushed but the `Finish`, whose usage says what of
    the prompt is held now, and what of that was before. A backend with no slot to spare refuses it.
    """

    id: str
    model: str
    items: tuple[ContextItem, ...]
    instructions: str | None = None
    num_prompt_tokens: int
    prefix: tuple[tuple[int, int], ...]  # (hash of the prompt so far, its tokens), at item ends
    max_output_tokens: int
    stop: tuple[str, ...] = ()
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    text_format: TextFormat = TextFormat()
    reasoning_effort: str | None = None
    reasoning_summary: str | None = None
    prompt_cache_key: str | None = None
    generate: bool = True


class Usage(msgspec.Struct, frozen=True):
    """Tokens a generation used; `exact` is false where an upstream was cut before it reported."""

    num_input_tokens: int = 0
    num_cached_tokens: int = 0  # of the input, served from a KV prefix
    num_output_tokens: int = 0  # reasoning included
    num_reasoning_tokens: int = 0
    exact: bool = True

    def __add__(self, other: "Usage") -> "Usage":
        if self is NO_USAGE:
            return other
        return Usage(
            self.num_input_tokens + other.num_input_tokens,
            self.num_cached_tokens + other.num_cached_tokens,
            self.num_output_tokens + other.num_output_tokens,
            self.num_reasoning_tokens + other.num_reasoning_tokens,
            self.exact and other.exact,
        )


NO_USAGE = Usage()  # where sums begin


class DeltaKind(enum.IntEnum):
    """What kind of output item a delta belongs to."""

    TEXT = 0
    REASONING = 1  # a reasoning summary, shown to the client
    FUNCTION_CALL = 2
    CUSTOM_CALL = 3


class Delta(msgspec.Struct, frozen=True, gc=False):
    """A piece of one output item; holds one token or many.

    `index` counts the generation's own output items from 0 and never falls; a higher one ends the
    item before it. Deltas of one item share `kind`, `call_id`, `name` and `phase`.
    """

    index: int
    kind: DeltaKind
    text: str  # of the message, the summary, or the call's arguments
    num_tokens: int
    at_us: int  # the engine's own time of the last token in it
    call_id: str = ""  # calls only
    name: str = ""  # calls only
    sealed: str = ""  # reasoning only: its encrypted content, in its last delta
    phase: str = ""  # messages only: "commentary" or "final_answer", where the engine says which


class FinishReason(enum.StrEnum):
    """Why a generation ended by itself. A cancelled one does not finish."""

    STOP = "stop"  # end of the answer, a stop sequence, or its calls
    LENGTH = "length"  # max_output_tokens
    CONTENT_FILTER = "content_filter"
    ERROR = "error"


class BackendError(Exception):
    """The engine or upstream failed; `code` is the protocol's (`server_error`, ...)."""

    def __init__(
        self,
        backend: str,
        code: str,
        message: str,
        *,
        retryable: bool,
        param: str | None = None,
        retry_after_us: int | None = None,
    ) -> None:
        """`param`: the field of the request that it found wrong; the rest is how long to wait."""
        super().__init__(backend, code, message)
        self.backend = backend
        self.code = code
        self.message = message
        self.retryable = retryable
        self.param = param
        self.retry_after_us = retry_after_us

    def __str__(self) -> str:
        return f"backend {self.backend}: {self.message} ({self.code})"


class Finish(msgspec.Struct, frozen=True):
    """The end of a generation: pushed exactly once unless it was cancelled."""

    reason: FinishReason
    usage: Usage
    at_us: int
    error: BackendError | None = None  # set exactly when reason is ERROR


class Sink(Protocol):
    """Where a backend pushes. Both methods are synchronous and must not block."""

    def push(self, delta: Delta) -> None: ...

    def finish(self, finish: Finish) -> None: ...


class Generation(Protocol):
    """A generation under way."""

    def cancel(self) -> Usage:
        """Stop now and return what was used; harmless after the end. The sink hears no more."""
        ...


BackendGroup = Literal["fast", "deep"]


class BackendInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend is; fixed while the process lives."""

    name: str  # unique among backends; a metric label
    model: str  # the model id that pins this backend
    group: BackendGroup
    window_tokens: int  # prompt and output together
    max_output_tokens: int
    accepts_images: bool = False
    simulated: bool = True


class BackendOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the options of every kind of backend say."""

    model: str  # the id clients pin it by
    window_tokens: int = 131_072  # prompt and output together
    max_output_tokens: int = 32_768

    def info(self, name: str, group: BackendGroup, **more: bool) -> BackendInfo:
        """What a backend with these options is; `more` are flags of `BackendInfo`."""
        return BackendInfo(
            name=name,
            model=self.model,
            group=group,
            window_tokens=self.window_tokens,
            max_output_tokens=self.max_output_tokens,
            **more,
        )


class BackendStats(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot for ranking and metrics."""

    info: BackendInfo
    healthy: bool
    num_running: int
    num_waiting: int
    num_warming: int = 0  # warm-ups; none of them is running or waiting
    max_num_seqs: int
    kv_used_tokens: int = 0  # by live sequences; kept prefixes can be evicted and do not count
    kv_capacity_tokens: int = 0
    num_generated_tokens: int = 0  # since start
    num_prompt_tokens: int = 0  # since start, cached ones included
    num_cached_tokens: int = 0  # since start
    ejected: bool = False  # left alone for failures in a row
    out_us: int = 0  # how long it will take nothing yet; 0: that is not known, or it is up
    num_continued: int = 0  # requests that brought an upstream only what it did not know
    num_chains_lost: int = 0  # of those, what the upstream had forgotten: sent whole again


class Backend(Protocol):
    """Something that generates: a simulated engine, an engine over a link, an upstream."""

    @property
    def info(self) -> BackendInfo: ...

    def start(self, request: GenerateRequest, sink: Sink) -> Generation:
        """Begin generating; returns at once and pushes from the event loop later, never from here.

        Raises:
            BackendError: It cannot take the request (closed, overloaded, too long).
        """
        ...

    def stats(self) -> BackendStats: ...

    async def close(self) -> None:
        """Stop everything; generations under way finish with an error first."""
        ...


class BackendKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """How a configuration names a backend: each kind adds its tag, a name and its options."""

    def make(self) -> Backend:
        """The backend; must run inside the event loop.

        Raises:
            OSError, ValueError: It cannot be made with these options.
        """
        raise NotImplementedError
