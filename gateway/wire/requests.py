"""Checks a decoded request, and makes the `Task` of it once its context is joined."""

import msgspec

from backends.client_patterns import compiled
from backends.contract import (
    NO_EXTRAS,
    ContextItem,
    Extras,
    FilePart,
    GenerateRequest,
    ImagePart,
    Message,
    Part,
    TextFormat,
    TextPart,
    Tool,
    ToolChoice,
)
from backends.prompt import Prefix, begun_prefix, cache_salt, extend_prefix
from backends.tokenizer import count
from gateway.wire.agents import agent_of
from gateway.wire.errors import ProtocolError, missing_parameter
from gateway.wire.events import NULL, CreateBody
from gateway.wire.fields import includes_sealed_reasoning, unserved
from gateway.wire.items import (
    AUTO_CHOICE,
    PLAIN_TEXT,
    InputReader,
    ParsedInput,
    check_tools,
    parse_input,
    parse_text_format,
    parse_tool_choice,
    parse_tools,
    too_long,
)
from router.agent_runs.follow_ups import asks_nothing
from router.classify.agent import UNKNOWN_AGENT
from router.classify.task import Hints, OptionValue, Route, StorePolicy, Task, Tenant
from router.strategies.table import REMOVED, STRATEGIES

# The limit of a request that names none; the engine's own applies, too.
DEFAULT_MAX_OUTPUT_TOKENS = 16_384

MAX_TRUNCATED_TOKENS = 1 << 20  # of an input whose beginning may be dropped


class ParsedCreate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Is a valid request, whose context is not loaded yet."""

    id: str  # of the response to be
    body: CreateBody  # as sent, for the response's echo
    input: ParsedInput
    tools: tuple[Tool, ...]
    tool_choice: ToolChoice
    text_format: TextFormat
    hints: Hints
    generate: bool = True
    stop: tuple[str, ...] = ()  # chat completions only
    seed: int | None = None  # chat completions only
    extras: Extras = NO_EXTRAS
    prediction: str | None = None  # chat completions only
    shows_commentary: bool = False  # metadata.commentary: it comes as messages of their own
    wants_context: bool = False  # metadata.context_events: warned as its context fills
    wants_queue_position: bool = False  # metadata.queue_events: told where it stands while it waits
    compacts: bool = False  # context_management: its context is compacted where it grows too long
    compact_threshold_tokens: int | None = None  # where that begins; None: the gateway's own
    answers: bool = True  # false: to be compacted, and nothing else

    @property
    def store(self) -> bool:
        """Says whether the response is stored; the protocol's default is yes."""
        return self.body.store is not False


def parse_create(
    body: CreateBody,
    response_id: str,
    *,
    generate: bool = True,
    max_tokens: int | None = None,
    own_input: InputReader | None = None,
    store: StorePolicy = "asked",
    like: ParsedCreate | None = None,
) -> ParsedCreate:
    """Checks what the Structs cannot: items, tools, choice, format and hints.

    `max_tokens` is the largest window of any engine, beyond which tokens are not counted;
    `own_input` has read the beginning of the input, or all of it. `store` is the tenant's: with
    "never" the request is taken as one with `store: false`. `like` is one before it: an agent sends
    the same long tools with each, which are not read again.
    The `param` of a `ProtocolError` names the field that is not valid.
    """
    if body.conversation is not None:
        if body.previous_response_id is None:
            raise unserved("conversation")
        message = "'previous_response_id' and 'conversation' exclude each other: send one."
        raise ProtocolError("invalid_value", message, param="conversation")
    if body.top_logprobs:
        raise unserved("top_logprobs")
    if store == "never":
        body = msgspec.structs.replace(body, store=False)
    if body.prompt_cache_options is not None:
        generate = generate and body.prompt_cache_options.prewarm is not True
    if body.truncation is not None:
        max_tokens = countable_tokens(body, max_tokens)
    given = body.input
    parsed_input = own_input.parsed() if own_input else parse_input(given, max_tokens=max_tokens)
    instructions = body.instructions
    if instructions and max_tokens is not None and _is_longer(instructions, max_tokens):
        raise too_long(max_tokens + 1, max_tokens, "instructions")
    if generate and not parsed_input.items and body.previous_response_id is None:
        raise missing_parameter("input", " Send a string or a non-empty list of items.")
    tools = parsed_input.tools
    if body.tools:
        if like is not None and like.body.tools == body.tools and not like.input.tools:
            tools = like.tools + tools
        else:
            tools = parse_tools(body.tools) + tools
        check_tools(body.tools, tools)
    text_format = parse_text_format(body.text.format) if body.text else PLAIN_TEXT
    choice = body.tool_choice
    parsed = ParsedCreate(
        id=response_id,
        body=body,
        input=parsed_input,
        tools=tools,
        tool_choice=AUTO_CHOICE if choice == NULL else parse_tool_choice(choice, tools),
        text_format=text_format,
        hints=parse_hints(body),
        extras=parse_extras(body),
        generate=generate,
        answers=not (parsed_input.triggers and generate),
    )
    return _with_wishes(parsed) if body.metadata or body.context_management else parsed


def _with_wishes(parsed: ParsedCreate) -> ParsedCreate:
    """Adds what few requests wish for; of several thresholds the lowest counts."""
    metadata, management = parsed.body.metadata or {}, parsed.body.context_management or ()
    thresholds = [entry.compact_threshold for entry in management]
    return msgspec.structs.replace(
        parsed,
        shows_commentary=_commentary(metadata) and parsed.text_format.type == "text",
        wants_context=bool(_flag(metadata, "context_events")),
        wants_queue_position=bool(_flag(metadata, "queue_events")),
        compacts=bool(management),
        compact_threshold_tokens=min(filter(None, thresholds), default=None),
    )


def countable_tokens(body: CreateBody, max_tokens: int | None) -> int | None:
    """Returns how long an input may be: where it is truncated, longer than any window."""
    if body.truncation != "auto" or max_tokens is None:
        return max_tokens
    return max(max_tokens, MAX_TRUNCATED_TOKENS)


def parse_extras(body: CreateBody) -> Extras:
    """Reads what few requests ask of an engine."""
    verbosity = body.text.verbosity if body.text else None
    seals = body.include is not None and includes_sealed_reasoning(body.include)
    if not (seals or verbosity or body.min_tokens or body.ignore_eos or body.service_tier):
        return NO_EXTRAS
    limit_tokens = body.max_output_tokens or DEFAULT_MAX_OUTPUT_TOKENS
    if (body.min_tokens or 0) > limit_tokens:
        message = f"Invalid 'min_tokens': expected at most {limit_tokens}, the output's limit."
        raise ProtocolError("invalid_value", message, param="min_tokens")
    return Extras(
        min_tokens=body.min_tokens or 0,
        ignore_eos=body.ignore_eos is True,
        seals_reasoning=seals,
        verbosity=verbosity,
        service_tier=body.service_tier,
    )


def _is_longer(text: str, max_tokens: int) -> bool:
    # A text of n characters has at most n tokens, so most need no counting here.
    return len(text) > max_tokens and count(text, max_tokens) > max_tokens


def parse_hints(body: CreateBody) -> Hints:
    """Reads the client's hints for the router, from standard fields and metadata."""
    told = body.client_metadata
    hints = Hints(
        model=body.model,
        reasoning_effort=body.reasoning.effort if body.reasoning else None,
        service_tier=body.service_tier,
        agent=UNKNOWN_AGENT if told == NULL else agent_of(told),
    )
    if body.metadata:
        hints = _with_metadata(hints, body.metadata)
    if body.background_options is not None:
        hints = msgspec.structs.replace(hints, completion_window=_completion_window(body))
    return hints


def _with_metadata(hints: Hints, metadata: dict[str, str]) -> Hints:
    """Adds the hints of `metadata`, which most requests have not."""
    route = metadata.get("route")
    if route is not None and route not in set(Route):
        raise _bad_hint("route", tuple(Route), route)
    strategy = metadata.get("strategy")
    max_wait_ms = _whole(metadata, "max_wait_ms", 0, 10**9 - 1)
    if strategy is not None and strategy not in STRATEGIES:
        instead = REMOVED.get(strategy)
        advice = f" It was removed: use '{instead}'." if instead else ""
        raise _bad_hint("strategy", tuple(STRATEGIES), strategy, advice)
    has_deadline = "deadline_ms" in metadata
    deadline_ms = _whole(metadata, "deadline_ms", 1, 10**9 - 1) if has_deadline else None
    return msgspec.structs.replace(
        hints,
        route=Route(route) if route else None,
        strategy=strategy,
        strategy_options=_strategy_options(strategy, metadata) if strategy else {},
        deadline_us=deadline_ms * 1_000 if deadline_ms else None,
        max_wait_us=None if max_wait_ms is None else max_wait_ms * 1_000,
        metadata=metadata,
    )


def _completion_window(body: CreateBody) -> str | None:
    options = body.background_options
    window = None if options is None else options.completion_window
    if window and not body.background:
        raise ProtocolError(
            "invalid_value",
            f"A completion window of '{window}' is for background work: add 'background': true.",
            param="background_options.completion_window",
        )
    return None if window == "soonest" else window


def _strategy_options(strategy: str, metadata: dict[str, str]) -> dict[str, OptionValue]:
    """Reads the options of this strategy; ignores other metadata."""
    options: dict[str, OptionValue] = {}
    for key, name, kind, bounds in STRATEGIES[strategy].client_options:
        value: OptionValue | None
        if bounds is not None:
            value = _whole(metadata, key, *bounds)
        else:
            value = _flag(metadata, key) if kind is bool else _pattern(metadata, key)
        if value is not None:
            options[name] = value
    return options


def _whole(metadata: dict[str, str], name: str, low: int, high: int) -> int | None:
    text = metadata.get(name)
    if text is None:
        return None
    if not (text.isdecimal() and len(text) < 10 and low <= int(text) <= high):
        raise _bad_hint(name, f"a whole number from {low} to {high}", text)
    return int(text)


def _commentary(metadata: dict[str, str]) -> bool:
    """Returns whether commentary comes as messages, and not as reasoning summaries."""
    text = metadata.get("commentary", "summary")
    if text not in ("summary", "messages"):
        raise _bad_hint("commentary", ("summary", "messages"), text)
    return text == "messages"


def _flag(metadata: dict[str, str], name: str) -> bool | None:
    text = metadata.get(name)
    if text not in (None, "true", "false"):
        raise _bad_hint(name, ("true", "false"), text or "")
    return None if text is None else text == "true"


def _pattern(metadata: dict[str, str], name: str) -> str | None:
    text = metadata.get(name)
    if text is not None and compiled(text) is None:
        raise _bad_hint(name, "a regular expression of RE2's syntax", text)
    return text


def _bad_hint(
    name: str, expected: str | tuple[str, ...], got: str, advice: str = ""
) -> ProtocolError:
    """Makes the error for a hint that is none of some words, or not as a text describes it."""
    quoted = (f"'{choice}'" for choice in expected)
    choices = expected if isinstance(expected, str) else ", ".join(quoted)
    message = f"Invalid 'metadata.{name}': expected {choices}, got '{got[:64]}'.{advice}"
    return ProtocolError("invalid_value", message, param=f"metadata.{name}")


def make_task(
    parsed: ParsedCreate,
    items: tuple[ContextItem, ...],
    tenant: Tenant,
    *,
    last_backend: str | None,
    arrived_us: int,
    arrived_unix_s: float,
    prefix: Prefix | None = None,
) -> Task:
    """Makes the task of a request whose whole context, own input included, is `items`.

    `prefix` is that of its prompt, where it was made before.
    """
    body = parsed.body
    salt = cache_salt(tenant.id)
    if prefix is None:
        made = begun_prefix(body.instructions, parsed.tools, parsed.text_format, salt)
        extend_prefix(made, items, salt)
        prefix = tuple(made)
    reasoning = body.reasoning
    request = GenerateRequest(
        id=parsed.id,
        model=body.model,
        items=items,
        instructions=body.instructions,
        num_prompt_tokens=prefix[-1][1] if prefix else 0,
        prefix=prefix,
        cache_salt=salt,
        may_store=tenant.store != "never",
        max_output_tokens=body.max_output_tokens or DEFAULT_MAX_OUTPUT_TOKENS,
        stop=parsed.stop,
        seed=parsed.seed,
        extras=parsed.extras,
        temperature=body.temperature,
        top_p=body.top_p,
        tools=parsed.tools,
        tool_choice=parsed.tool_choice,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        text_format=parsed.text_format,
        reasoning_effort=reasoning.effort if reasoning else None,
        reasoning_summary=(reasoning.summary or reasoning.generate_summary) if reasoning else None,
        prompt_cache_key=body.prompt_cache_key,
        prediction=parsed.prediction,
    )
    attached, num_messages, first, last_text, num_last_tokens = _said_by_user(items)
    return Task(
        id=parsed.id,
        tenant=tenant,
        request=request,
        hints=parsed.hints,
        last_user_message=last_text,
        num_last_message_tokens=num_last_tokens,
        num_turns=num_messages,
        has_images=ImagePart in attached,
        has_files=FilePart in attached,
        last_backend=last_backend,
        arrived_us=arrived_us,
        arrived_unix_s=arrived_unix_s,
        # Without a cache key, the first user message identifies it.
        conversation=body.prompt_cache_key or first,
        generate=parsed.generate,
    )


def _said_by_user(items: tuple[ContextItem, ...]) -> tuple[set[type[Part]], int, str, str, int]:
    """Reads a context's messages; it may have hundreds of items.

    Returns the kinds of all messages' parts; the number of the user's, and the first one's hash;
    the text of the last one that asks for something, which the router classifies, and its tokens.
    """
    attached: set[type[Part]] = set()
    users: list[ContextItem] = []
    for entry in items:
        item = entry.item
        if isinstance(item, Message):
            attached.update(map(type, item.content))
            if item.role == "user":
                users.append(entry)
    if not users:
        return attached, 0, "", "", 0
    last = users[-1]
    if len(users) > 1 and items[-1] is last and items[-2] is users[-2] and asks_nothing(last.item):
        last = users[-2]
    assert isinstance(last.item, Message)
    text = "\n".join([part.text for part in last.item.content if isinstance(part, TextPart)])
    return attached, len(users), f"{users[0].digest:x}", text, last.num_tokens
