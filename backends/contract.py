"""Defines what every backend receives and returns.

A backend turns a `GenerateRequest` into output items. It pushes `Delta`s and one `Finish` into a
`Sink`, synchronously: between an engine's step and the socket there is no await and no queue.
"""

import enum
from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

Role = Literal["user", "assistant", "system", "developer"]


class TextPart(msgspec.Struct, frozen=True, tag="text", gc=False):
    """Holds a piece of text inside a message or a tool's output."""

    text: str


class RefusalPart(msgspec.Struct, frozen=True, tag="refusal", gc=False):
    """Holds the words in which the assistant refused."""

    refusal: str


class ImagePart(msgspec.Struct, frozen=True, tag="image", gc=False):
    """Names an image by URL (a data URL included) or by file id; we never fetch it."""

    image_url: str | None = None
    file_id: str | None = None
    detail: str = "auto"


class FilePart(msgspec.Struct, frozen=True, tag="file", gc=False):
    """Holds a file of the client; it is passed through to engines that take files."""

    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None
    file_data: str | None = None


Part = TextPart | RefusalPart | ImagePart | FilePart


class Message(msgspec.Struct, frozen=True, tag="message", gc=False):
    """Is one message of the conversation."""

    role: Role
    content: tuple[Part, ...]
    id: str | None = None
    phase: str | None = None  # "commentary" or "final_answer" on assistant messages
    name: str | None = None  # of the participant, in chat completions alone


class FunctionCall(msgspec.Struct, frozen=True, tag="function_call", gc=False):
    """Is the model's call of a client's function."""

    call_id: str
    name: str
    arguments: str  # JSON text
    id: str | None = None
    namespace: str | None = None
    is_cut: bool = False  # it broke off: nobody is to run it


class FunctionCallOutput(msgspec.Struct, frozen=True, tag="function_call_output", gc=False):
    """Holds what the client's function returned."""

    call_id: str
    output: tuple[Part, ...]
    id: str | None = None


class CustomToolCall(msgspec.Struct, frozen=True, tag="custom_tool_call", gc=False):
    """Is the model's call of a free-form tool."""

    call_id: str
    name: str
    input: str
    id: str | None = None
    is_cut: bool = False


class CustomToolCallOutput(msgspec.Struct, frozen=True, tag="custom_tool_call_output", gc=False):
    """Holds what the client's free-form tool returned."""

    call_id: str
    output: tuple[Part, ...]
    id: str | None = None


class Reasoning(msgspec.Struct, frozen=True, tag="reasoning", gc=False):
    """Is a reasoning item as the client sends it back; its encrypted content is opaque."""

    id: str | None = None
    summary: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    encrypted_content: str | None = None


class Compaction(msgspec.Struct, frozen=True, tag="compaction", gc=False):
    """Stands for an earlier part of the conversation that was compacted."""

    encrypted_content: str
    id: str | None = None
    summary: str | None = None  # the decrypted summary; None if another server encrypted it
    number: int = 0  # of automatic compactions in the conversation, this one included


Item = (
    Message
    | FunctionCall
    | FunctionCallOutput
    | CustomToolCall
    | CustomToolCallOutput
    | Reasoning
    | Compaction
)


class ContextItem(msgspec.Struct, frozen=True, gc=False):
    """Holds an item with its size and its hash, which are computed only once.

    `backends.prompt.measure` makes them; contexts of one conversation share them.
    """

    item: Item
    num_tokens: int
    digest: int  # 64-bit hash of the rendered item; equal items have equal digests


class FunctionTool(msgspec.Struct, frozen=True, tag="function", gc=False):
    """Describes a function of the client; `parameters` is its JSON schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    strict: bool = False
    namespace: str | None = None


class CustomTool(msgspec.Struct, frozen=True, tag="custom", gc=False):
    """Describes a free-form tool of the client; `format` is its grammar, if it has one."""

    name: str
    description: str = ""
    format: dict[str, Any] | None = None


Tool = FunctionTool | CustomTool


class ToolChoice(msgspec.Struct, frozen=True, gc=False):
    """Says whether the model may, must or must not call a tool, and which (empty `names`: any)."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()


class TextFormat(msgspec.Struct, frozen=True, gc=False):
    """Says which format the response must have; the other fields are for `json_schema` only."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    schema: dict[str, Any] | None = None
    name: str = "answer"
    strict: bool | None = None  # None: the engine's default


class Extras(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Holds what few requests ask of an engine; one that cannot do it leaves it out."""

    min_tokens: int = 0  # the answer goes on for so many, whatever it says (vLLM's name)
    ignore_eos: bool = False  # it goes on to `max_output_tokens` (vLLM's name)
    seals_reasoning: bool = False  # the client wants encrypted reasoning, to send it back
    verbosity: str | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None  # by the engine's own token
    service_tier: str | None = None  # as the client asked; for an upstream that sells it


NO_EXTRAS = Extras()


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Holds everything that a backend needs for one generation.

    The prompt is `instructions`, then `tools`, then `items`, rendered by `backends.prompt`. A
    warm-up (`generate` false) computes the prompt and keeps its KV, as far as the backend can. It
    pushes only a `Finish`, whose usage says how much of the prompt is cached now and how much was
    cached before. A backend with no free slot refuses it.

    `prefill` holds the first words of the answer, which another engine has said: the backend goes
    on behind them, in the same message, and does not push them again. They are part of
    `num_prompt_tokens` and of no `prefix`; `max_output_tokens` counts what is still to come. Only a
    backend whose `BackendInfo.prefills` is true is sent any.
    """

    id: str
    model: str
    items: tuple[ContextItem, ...]
    instructions: str | None = None
    num_prompt_tokens: int
    prefix: tuple[tuple[int, int], ...]  # (hash of the prompt so far, its tokens), at item ends
    cache_salt: int = 0  # only requests with the same salt share cached prefixes; 0: none
    may_store: bool = True  # false: an upstream must not store it, even for us to continue it
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
    prediction: str | None = None  # what the answer will mostly be; only for who takes predictions
    generate: bool = True
    extras: Extras = NO_EXTRAS
    prefill: str = ""
    has_spare: bool = False  # another backend of the group stands by, should this one be limited
    traceparent: str | None = None  # W3C's, for an upstream; None: the task is not traced


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Counts the tokens of a generation; inexact if an upstream was cut off before it reported.

    Predicted tokens that the engine computed and rejected are charged as output, though nobody
    reads them.
    """

    num_input_tokens: int = 0
    num_cached_tokens: int = 0  # of the input, served from a KV prefix
    num_output_tokens: int = 0  # reasoning and rejected predictions included
    num_reasoning_tokens: int = 0
    exact: bool = True
    bounded: bool = False  # an engine reported more than can be, or nonsense: `backends.bounds`
    num_accepted_tokens: int = 0  # of the prediction, which are in the answer
    num_rejected_tokens: int = 0  # of the prediction, which are not
    energy_uj: int = 0  # that the engine took for it, in micro-joules; 0: unknown
    num_cache_write_tokens: int = 0  # of the input that was not cached, written to a cache
    service_tier: str = ""  # that the upstream served and bills; "": no tiers, or a sum of several

    def __add__(self, other: "Usage") -> "Usage":
        if self is NO_USAGE:
            return other
        return Usage(
            self.num_input_tokens + other.num_input_tokens,
            self.num_cached_tokens + other.num_cached_tokens,
            self.num_output_tokens + other.num_output_tokens,
            self.num_reasoning_tokens + other.num_reasoning_tokens,
            self.exact and other.exact,
            self.bounded or other.bounded,
            self.num_accepted_tokens + other.num_accepted_tokens,
            self.num_rejected_tokens + other.num_rejected_tokens,
            self.energy_uj + other.energy_uj,
            self.num_cache_write_tokens + other.num_cache_write_tokens,
            self.service_tier if self.service_tier == other.service_tier else "",
        )


NO_USAGE = Usage()


class DeltaKind(enum.IntEnum):
    """Says what kind of output item a delta belongs to."""

    TEXT = 0
    REASONING = 1  # a reasoning summary, shown to the client
    FUNCTION_CALL = 2
    CUSTOM_CALL = 3


# These names save a look-up in the enumeration, which takes as long as a call.
TEXT, REASONING, FUNCTION_CALL, CUSTOM_CALL = DeltaKind


class Delta(msgspec.Struct, frozen=True, gc=False):
    """Holds a piece of one output item: one token or many.

    `index` counts the generation's own output items from 0 and never falls; a higher one ends the
    item before it. Deltas of one item share `kind`, `call_id`, `name`, `phase` and `refuses`.
    """

    index: int
    kind: DeltaKind
    text: str  # of the message, the summary, or the call's arguments
    num_tokens: int
    at_us: int  # the engine's own time of its last token
    call_id: str = ""  # calls only
    name: str = ""  # calls only
    sealed: str = ""  # reasoning only: its encrypted content, in its last delta
    phase: str = ""  # messages only: "commentary" or "final_answer", if the engine says which
    refuses: bool = False  # messages only: these are the words in which the model refuses


class FinishReason(enum.StrEnum):
    """Says why a generation ended by itself; a cancelled one has no finish."""

    STOP = "stop"  # end of the text, a stop sequence, or tool calls
    LENGTH = "length"  # max_output_tokens
    CONTENT_FILTER = "content_filter"
    ERROR = "error"


class BackendError(Exception):
    """Says that the engine or upstream failed; `code` is the protocol's (`server_error`, ...)."""

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
        """`param` names the field of the request that is invalid."""
        super().__init__(backend, code, message)
        self.backend = backend
        self.code = code
        self.message = message
        self.retryable = retryable
        self.param = param
        self.retry_after_us = retry_after_us

    def __str__(self) -> str:
        return f"backend {self.backend}: {self.message} ({self.code})"


class EngineTimes(msgspec.Struct, frozen=True, array_like=True):
    """Says how long a request spent in each phase of an engine, as vLLM divides them."""

    queue_us: int  # until its first step
    prefill_us: int  # from there to its first token
    decode_us: int  # from there to its last


class Finish(msgspec.Struct, frozen=True):
    """Ends a generation: pushed exactly once unless the generation was cancelled."""

    reason: FinishReason
    usage: Usage
    at_us: int
    error: BackendError | None = None  # set exactly when reason is ERROR
    stop_sequence: str | None = None  # that ended the text, where the engine says which
    times: EngineTimes | None = None  # where the engine says


# Takes text that only goes on with the item of the latest delta: the text, its tokens, and the
# engine's own time of the last of them.
More = Callable[[str, int, int], None]


class Sink(Protocol):
    """Receives a backend's output. Both methods are synchronous and must not block."""

    def push(self, delta: Delta) -> More | None:
        """Takes a delta; may return a shorter way for what only goes on with its text.

        That holds until the next delta is pushed, and a backend need not take it.
        """
        ...

    def finish(self, finish: Finish) -> None: ...


class Generation(Protocol):
    """Is a generation under way."""

    def cancel(self, *, is_silent: bool = False) -> Usage:
        """Stops now and returns the usage; harmless after the end. The sink is not called again.

        `is_silent`: because it has said nothing for too long, which is its server's failure.
        """
        ...

    def pause(self) -> bool:
        """Stops pushing soon, until `resume`, because nobody reads what is pushed.

        Returns false, and goes on, if others' output comes the same way and would stop as well.
        """
        ...

    def resume(self) -> None:
        """Pushes again; harmless if it was not paused."""
        ...


BackendGroup = Literal["fast", "deep"]


class BackendInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a backend; fixed while the process lives."""

    name: str  # unique among backends; a metric label
    model: str  # the model id that pins this backend
    group: BackendGroup
    window_tokens: int  # prompt and output together
    max_output_tokens: int
    accepts_images: bool = False
    accepts_files: bool = False  # attached ones, such as PDFs
    takes_predictions: bool = False  # it checks `GenerateRequest.prediction` in blocks
    # It reads a prediction as a part of its prompt, with so many tokens around it; 0: it does not.
    prediction_tokens: int = 0
    simulated: bool = True
    # Where a simulated engine's speed was taken over from, and how far off it may be; empty where
    # it was measured, and is not far off that.
    speed_basis: str = ""
    prefills: bool = False  # it goes on with an answer that another engine began
    first_token_timeout_us: int = 0  # by its options; 0: it has no such limit
    service_tiers: tuple[str, ...] = ()  # it is asked for one of these if its client asks for it
    fixed_tier: str = ""  # it is asked for this one, whatever its client asks for


# Why a backend is out until a time: for consecutive failures, or only for a pause that its server
# asked for, as for its rate limit.
OutFor = Literal["", "failures", "limit"]


class BackendStats(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Is a snapshot of a backend for ranking and metrics."""

    info: BackendInfo
    healthy: bool
    num_running: int
    num_waiting: int
    num_warming: int = 0  # warm-ups, which are neither running nor waiting
    max_num_seqs: int
    kv_used_tokens: int = 0  # by live sequences; kept prefixes can be evicted and do not count
    kv_capacity_tokens: int = 0
    num_generated_tokens: int = 0  # since start
    num_prompt_tokens: int = 0  # since start, cached ones included
    num_cached_tokens: int = 0  # since start
    out_for: OutFor = ""
    drained: bool = False  # an admin lets it have no new tasks
    out_us: int = 0  # how long it stays unavailable; 0: unknown, or it is available
    num_continued: int = 0  # requests that sent an upstream only the items that it lacked
    num_chains_lost: int = 0  # of those, sent again in full, as the upstream had lost the rest
    num_bounded: int = 0  # generations whose reported usage was beyond its bound
    num_overruns: int = 0  # generations that were stopped as they went on beyond their limit
    power_w: float = 0.0  # rated, of the whole machine; 0: unknown
    busy_us: int = 0  # since start, in which the engine computed

    @property
    def takes_tasks(self) -> bool:
        """Says whether new tasks may go there."""
        return self.healthy and not self.drained

    @property
    def ejected(self) -> bool:
        """Says whether it was taken out of use for its failures."""
        return self.out_for == "failures"


class Backend(Protocol):
    """Generates: a simulated engine, an engine over a link, or an upstream."""

    @property
    def info(self) -> BackendInfo: ...

    def start(self, request: GenerateRequest, sink: Sink) -> Generation:
        """Starts to generate and returns at once; pushes come from the event loop, never from here.

        Raises `BackendError` if it cannot take the request (closed, overloaded, too long).
        """
        ...

    def stats(self) -> BackendStats: ...

    async def close(self) -> None:
        """Stops everything; generations under way finish with an error first."""
        ...
