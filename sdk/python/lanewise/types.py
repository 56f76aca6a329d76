"""The fields of a response and of its `routing`.

Generated from the Structs in gateway/wire by `make sdk`: edit those.
"""

from typing import Any, TypedDict

import msgspec


class ReasoningEcho(TypedDict, total=False):
    """Repeats `reasoning` of the request."""

    effort: str | None  # how much reasoning was asked for
    summary: str | None  # the kind of summary that was asked for


class TextEcho(TypedDict, total=False):
    """Repeats `text` of the request."""

    format: Any  # plain text, or a JSON schema that the text follows
    verbosity: str | None  # how wordy the text was asked to be


class ResponseError(TypedDict, total=False):
    """Says why a response failed."""

    code: str  # for programs
    message: str  # for people
    param: str | None  # the field of the request that was wrong


class IncompleteDetails(TypedDict, total=False):
    """Says why a response is incomplete."""

    # `max_output_tokens` or `content_filter`; ours are `steered`, `cancelled` and `awaited`
    reason: str | None


class InputDetails(msgspec.Struct):
    """Counts the input tokens by kind."""

    cached_tokens: int = 0  # input tokens that a KV cache held
    cache_write_tokens: int = 0  # input tokens that an upstream wrote to its cache


class OutputDetails(msgspec.Struct):
    """Counts the output tokens by kind."""

    reasoning_tokens: int = 0  # output tokens spent on reasoning
    # tokens of the prediction that are in the answer, where one was checked
    accepted_prediction_tokens: int | None = None
    # tokens of the prediction that were computed and are not in the answer
    rejected_prediction_tokens: int | None = None


class Usage(msgspec.Struct):
    """Counts the tokens of a response, or of what a backend did for it."""

    input_tokens: int = 0  # tokens of the prompt
    # the input tokens by kind
    input_tokens_details: InputDetails = msgspec.field(default_factory=InputDetails)
    output_tokens: int = 0  # tokens generated, reasoning included
    # the output tokens by kind
    output_tokens_details: OutputDetails = msgspec.field(default_factory=OutputDetails)
    total_tokens: int = 0  # input and output together


class RoutedBackend(msgspec.Struct):
    """Describes a backend that works on the response."""

    name: str = ""  # its name in the gateway's configuration
    group: str = ""  # the group of engines that it belongs to
    model: str = ""  # the model id that pins this backend
    simulated: bool = False  # whether a simulated engine answers, and no real one
    # of a simulated engine: whose speed it has if it was not measured, and how far off that may be
    speed_basis: str = ""


class RoutedClass(msgspec.Struct):
    """Says how the task was classified."""

    label: str = ""  # the kind of engine that it needs by its words, as `p_deep` says
    p_deep: float = 0.0  # probability, from 0 to 1, that the deep engine is needed, by its words
    p_security: float = 0.0  # probability that the task is security-sensitive
    signals: list[str] = []  # the signals that counted, strongest first


class PoolBalance(msgspec.Struct):
    """Says what is left in one of the tenant's pools."""

    group: str = ""  # the group of engines that the pool limits
    unit: str = ""  # what the pool counts
    limit: int = 0  # the most per minute or day; of `concurrent`, the most at once
    remaining: int = 0  # how much may still be taken
    reset_s: float = 0.0  # seconds until the pool is full again


class ContextUse(msgspec.Struct):
    """Says how full the context window is."""

    used_tokens: int = 0  # tokens of prompt and output together
    window_tokens: int = 0  # the smallest window of the route
    used_percent: float = 0.0  # used share of the window
    band: str = ""  # what to expect: below 30 %, 60 %, 80 % of the window, or beyond
    crossed_from: str | None = None  # the band before, where this turn led into another


class BudgetUse(msgspec.Struct):
    """Says what was spent of one budget before this task."""

    scope: str = ""  # whose budget it is: the tenant's, its key's or its run's
    window: str = ""  # what it is of: the UTC day, the month, or the whole run
    used_usd: float = 0.0  # spent by tasks that have ended
    held_usd: float = 0.0  # reserved by tasks that run, this one included
    soft_usd: float | None = None  # a warning is given from here on
    hard_usd: float | None = None  # no task begins that could exceed it
    over_soft: bool = False  # whether the soft limit is spent
    renews_s: float | None = None  # seconds until it begins anew; a run's never does


# Tells that a backend failed before its first word, and that another began again.
RoutedFailover = TypedDict("RoutedFailover", {"from": str, "to": str, "error": str}, total=False)


# Tells that a backend broke off or fell silent amid its answer, and that another went on.
RoutedContinuation = TypedDict(
    "RoutedContinuation",
    {
        "from": str,
        "to": str,
        "at_chars": int,
        "at_tokens": int,
        "reason": str,
        "error": str,
    },
    total=False,
)


class RoutedDelegation(TypedDict, total=False):
    """Describes a sub-task of the strategy `delegate`."""

    id: str  # steer or cancel the sub-task by it
    task: str  # what the deep engine was asked
    state: str  # `running`, `finished`, `failed` or `cancelled`


class RoutedCompaction(TypedDict, total=False):
    """Says what became of the compaction before the answer."""

    state: str  # how far the compaction is; docs/context.md explains each
    number: int  # which automatic compaction of the conversation it is, from 1
    max_per_conversation: int  # the most automatic compactions of a conversation
    threshold_tokens: int  # a longer prompt is compacted
    tokens_before: int  # tokens of the prompt as it came
    tokens_after: int | None  # tokens of the compacted prompt
    error: str | None  # why there is no summary
    usage: dict[str, dict[str, Any]] | None  # what the summary took, by backend


class RoutedCost(msgspec.Struct):
    """Says what a response costs."""

    amount: float = 0.0  # by the prices of the day that it ended on
    currency: str = ""  # `USD`


class RoutedGeneration(TypedDict, total=False):
    """Describes one generation of a strategy."""

    backend: str  # the backend that generated
    part: str  # its part in the strategy; docs/strategies.md names them
    state: str  # `finished`, `cancelled` or `failed`
    input_tokens: int  # tokens of its prompt
    cached_tokens: int  # those of them that a KV cache held
    output_tokens: int  # tokens that it generated, reasoning included
    reasoning_tokens: int  # those of them that were reasoning


class RoutedVariations(TypedDict, total=False):
    """Counts the variations that `breadth` made."""

    asked: int  # variations that were begun
    whole: int  # variations that came to their end


class RoutedRejoin(msgspec.Struct):
    """Tells that a client came back to the response after its connection was lost."""

    times: int = 0  # how often it came back
    held_items: int = 0  # finished items of the output that it held, and was not sent again
    away_ms: int = 0  # how long nobody listened, the last time


class RoutedWarmUp(TypedDict, total=False):
    """Says how far one backend is ready after a warm-up."""

    backend: str  # the backend's name
    state: str  # how ready it is; explained under warm-ups
    held_tokens: int  # tokens of the context that its KV cache holds now
    cached_tokens: int  # those of them that it held before


class Routing(msgspec.Struct):
    """Says where a response ran and why."""

    route: str = ""  # where the task went
    strategy: str | None = None  # how both engines work together; null with one engine
    backends: list[RoutedBackend] = []  # those that work on it, as failovers have left them
    # how the task was classified
    task_class: RoutedClass = msgspec.field(name="class", default_factory=RoutedClass)
    reason: str = ""  # the kind of rule that put this route first
    why: str = ""  # the same in one sentence, for people
    policy_version: str = ""  # the policy that decided
    pools: list[PoolBalance] = []  # what is left in the tenant's pools of this route
    ratelimit_mode: str = ""  # `degraded` while Redis is away and the gateway limits by itself
    # how full the context window is
    context: ContextUse = msgspec.field(default_factory=ContextUse)
    budgets: list[BudgetUse] = []  # what is left of the task's budgets in money
    moved_from: str | None = None  # the backend that held the conversation, where this is another
    failovers: list[RoutedFailover] = []  # backends that others stood in for
    continued: list[RoutedContinuation] = []  # answers that broke off, and that others went on with
    # the sub-tasks of `delegate`; `response.in_progress` comes again when one changes
    delegations: list[RoutedDelegation] = []
    compaction: RoutedCompaction | None = None  # where `context_management` applied
    # at the end: what each backend used, over all generations; this is what is charged
    usage: dict[str, Usage] = {}
    cost: RoutedCost | None = None  # at the end: of that usage; missing where a model has no price
    # at the end: of that usage, in engines alone; missing where one's power is not known
    energy_joules: float | None = None
    answered_by: str | None = None  # at the end: the backend whose answer this is
    errors: list[str] = []  # at the end: what failed, although there is an answer
    generations: list[RoutedGeneration] = []  # at the end: those of a strategy
    variations: RoutedVariations | None = None  # at the end: how many `breadth` made
    rejoined: RoutedRejoin | None = None  # where the client lost its connection and came back
    warm: list[RoutedWarmUp] = []  # after a warm-up: how ready each backend is


class ResponseFields(msgspec.Struct, kw_only=True):
    """A response as the gateway sends it."""

    id: str  # names the response; the next one continues it by `previous_response_id`
    object: str = ""  # the kind of object
    created_at: int = 0  # Unix time in seconds when it began
    background: bool = False  # whether it outlives its request
    instructions: str | None = None  # the request's instructions
    max_output_tokens: int | None = None  # the request's limit of the output
    max_tool_calls: int | None = None  # the request's limit of tool calls
    metadata: dict[str, str] = {}  # the request's metadata, hints for the router among them
    parallel_tool_calls: bool = False  # whether tools may be called at once
    previous_response_id: str | None = None  # the response that this one continues
    prompt_cache_key: str | None = None  # the request's name for its conversation
    reasoning: ReasoningEcho | None = None  # how the request wanted the reasoning
    safety_identifier: str | None = None  # the request's name for its user
    store: bool = False  # whether the response is kept
    temperature: float = 0.0  # the request's temperature, else 1
    # how the request wanted the text
    text_settings: TextEcho | None = msgspec.field(name="text", default=None)
    tool_choice: Any = None  # which tools may or must be called
    tools: list[Any] = []  # the request's tools
    top_logprobs: int = 0  # the request's number of log probabilities; there are none
    top_p: float = 0.0  # the request's share of nucleus sampling, else 1
    truncation: str = ""  # the request's truncation, else `disabled`
    user: str | None = None  # the request's name for its user, as older clients send it
    output: list[Any] = []  # the items that are done
    model: str = ""  # the model that answers
    # at the end the tier that was used, before that the one that was asked for
    service_tier: str = ""
    status: str = ""  # `queued`, `in_progress`, `completed`, `incomplete`, `failed` or `cancelled`
    completed_at: int | None = None  # Unix time in seconds, once it is completed
    error: ResponseError | None = None  # why it failed
    incomplete_details: IncompleteDetails | None = None  # why it is incomplete
    usage: Usage | None = None  # at the end: the context, and the answer with its reasoning
    routing: Routing | None = None  # ours: where it ran and why, as in the table above
