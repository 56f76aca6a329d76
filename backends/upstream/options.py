"""Holds the options of an upstream: its address, its dialect and its time limits.

An upstream is a server that we did not write and that speaks one of OpenAI's three ways to stream
a response. Further differences between servers are options here, never special cases by name.
"""

import ipaddress
from functools import cached_property
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, field

from backends.configuration import BackendOptions, Seconds
from backends.contract import BackendGroup
from backends.upstream.chat_roles import SystemMessages

Protocol = Literal["responses-ws", "responses", "chat"]
UrlScheme = Literal["data", "https", "http"]
Count = Annotated[int, Meta(ge=1)]
AskedTier = Literal["flex", "scale", "priority", "fast", "ultrafast"]


class UpstreamOptions(
    BackendOptions, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True
):
    """Describes one model of one server, as a backend of a group."""

    base_url: str  # up to and with its version, e.g. https://api.openai.com/v1
    upstream_model: str  # the server's own name for it
    group: BackendGroup
    protocol: Protocol = "chat"
    key_env: str | None = None  # the environment variable that holds the key
    key_file: str | None = None  # instead: a file of keys, one on a line, used in turn
    key_header: Literal["authorization", "api-key"] = "authorization"
    window_tokens: Count = 131_072
    max_output_tokens: Count = 32_768
    max_num_seqs: Annotated[int, Meta(ge=1, le=4096)] = 64  # generations at once
    accepts_images: bool = False
    accepts_files: bool = False  # attached ones, such as PDFs

    # What it may be sent and may send. The limit in tokens that is sent bounds an answer, too.
    url_schemes: tuple[UrlScheme, ...] = ("data", "https")  # it may fetch
    private_urls: bool = False  # it may fetch from addresses that are not public
    max_answer_bytes: Annotated[int, Meta(ge=4_096)] = 4 << 20
    max_image_tokens: Count = 16_384  # that an image can cost: Qwen2.5-VL's default, 2025-02

    # How this server's dialect differs.
    seals_reasoning: bool = False  # it returns encrypted reasoning and wants it back (Responses)
    custom_tools: Literal["function", "native"] = "function"  # native: Responses only
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    # Which role developer messages have in chat. With "user", a template that takes a system
    # message only at the beginning gets later ones as the user's, marked as Claude Code does where
    # it is refused.
    developer_role: Literal["system", "developer", "user"] = "system"
    takes_min_tokens: bool = False  # it takes `min_tokens` and `ignore_eos`, as vLLM and SGLang
    # How it goes on with an answer that another engine began; "none": it cannot. "last_message": by
    # an assistant's message at the end (llama.cpp, OpenRouter, Anthropic's compatible endpoint);
    # "continue_final_message": by that and vLLM's or SGLang's field; "prefix": by that with
    # `prefix: true` (DeepSeek's /beta, Mistral). Chat completions only; read 2026-11.
    prefill: Literal["none", "last_message", "continue_final_message", "prefix"] = "none"
    echoes_prefill: bool = False  # its answer begins with these words once more, as Mistral's
    system_messages: SystemMessages = "anywhere"  # first: its chat template takes no later ones
    pads_tool_turns: bool = False  # it refuses a user's message behind a tool's, as Mistral's
    cache_salt: bool = False  # it takes this field, as vLLM: tenants share no cached prefixes there
    # Tiers that a client's `service_tier` may ask it for. It bills the one that it says it served.
    service_tiers: tuple[AskedTier, ...] = ()
    omit: tuple[str, ...] = ()  # fields of the body that the server refuses
    extra_body: dict[str, Any] = field(default_factory=dict)  # further fields that it needs

    # How it takes a prediction of the answer, which it then checks in blocks (chat only). "field":
    # in the request's `prediction`, as OpenAI's gpt-4o and gpt-4.1 and Cerebras' gpt-oss-120b and
    # GLM-4.7 (in preview) do, without tools (2026-11); OpenAI wants `max_tokens` beside it.
    # "prompt": as a draft in the prompt, for a server that speculates by n-grams of it.
    prediction: Literal["field", "prompt"] | None = None

    # Sockets (responses-ws): each has one stream unless the server can cancel one alone.
    max_streams_per_socket: Annotated[int, Meta(ge=1, le=16)] = 1  # OpenAI: 16 at once
    max_idle_sockets: Annotated[int, Meta(ge=1, le=1024)] = 16  # kept for conversations to continue
    cancel_event: bool = False  # it cancels a response on `response.cancel`, as Lanewise does
    socket_max_age_s: Seconds = 1_200.0  # below xAI's 25 min and OpenAI's 60 min
    socket_max_idle_s: Seconds = 120.0

    # Whether turns continue by the server's own `previous_response_id`, with new items only. None:
    # they do over sockets, whose memory ends with them, and not over HTTP, where the server must
    # store responses.
    chains: bool | None = None

    # Time limits.
    connect_timeout_s: Seconds = 5.0
    first_token_timeout_s: Seconds = 120.0  # retries included
    idle_timeout_s: Seconds = 60.0  # between two events, once tokens came
    total_timeout_s: Seconds = 3_600.0
    max_retries: Annotated[int, Meta(ge=0, le=10)] = 2  # before the first token only
    retry_pause_s: Seconds = 0.2  # doubles with each retry
    max_retry_after_s: Seconds = 2.0  # a server that asks for longer is not used meanwhile

    # Health.
    probe_path: str | None = "/models"  # requested by the health probe; None: no probe
    probe_interval_s: Seconds = 10.0
    eject_after: Count = 5  # failures in a row
    ejection_s: Seconds = 30.0  # times the number of ejections, up to ten times
    slow_start_s: Annotated[float, Meta(ge=0, le=3_600)] = 30.0

    @cached_property
    def continues(self) -> bool:
        """Returns whether requests continue responses that the server remembers."""
        return self.protocol == "responses-ws" if self.chains is None else self.chains

    @cached_property
    def stores(self) -> bool:
        """Returns whether requests have the server store responses."""
        return self.protocol == "responses" and self.continues


def check_options(options: UpstreamOptions) -> None:
    """Checks what the types cannot; raises ValueError that names an invalid option."""
    # The operator chose the address, so private networks are fine: engines live there.
    url = urlsplit(options.base_url)
    if url.scheme not in ("http", "https", "ws", "wss") or not url.hostname:
        raise ValueError(f"base_url: expected http(s)://HOST[:PORT]/v1, got {options.base_url!r}")
    try:
        _ = url.hostname.encode("idna"), url.port
    except ValueError as error:
        raise ValueError(f"base_url: its host or its port is wrong: {error}") from error
    if url.username or url.password or url.query or url.fragment:
        raise ValueError("base_url: no credentials, query or fragment; keys come by key_env")
    if options.key_env is not None and options.key_file is not None:
        raise ValueError("key_env, key_file: give one of the two")
    if _is_link_local(url.hostname):
        raise ValueError(f"base_url: {url.hostname} is link-local: clouds serve secrets there")
    if options.max_streams_per_socket > 1 and not options.cancel_event:
        raise ValueError(
            "max_streams_per_socket: streams may share a socket only where cancel_event is true; "
            "elsewhere one is stopped by closing its socket"
        )
    if options.chains and options.protocol == "chat":
        raise ValueError("chains: chat completions know no previous_response_id")
    if options.prefill != "none" and options.protocol != "chat":
        raise ValueError("prefill: only chat completions go on with an assistant's message")
    if options.prediction is not None and options.protocol != "chat":
        raise ValueError('prediction: only protocol "chat" has a way to send one')
    if options.custom_tools == "native" and options.protocol == "chat":
        raise ValueError('custom_tools: "native" needs one of the Responses protocols')


def http_url(options: UpstreamOptions, path: str) -> str:
    """Returns the HTTP URL of a path."""
    scheme, _, rest = options.base_url.partition("://")
    secure = "s" if scheme.lower() in ("https", "wss") else ""
    return f"http{secure}://{rest.rstrip('/')}{path}"


def socket_url(options: UpstreamOptions) -> str:
    """Returns the URL of the Responses WebSocket."""
    return "ws" + http_url(options, "/responses").removeprefix("http")


def _is_link_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_link_local
    except ValueError:
        return False
