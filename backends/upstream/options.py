"""Where an upstream is, what it can take, and how long anyone waits for it.

An upstream is a server that we did not write and that speaks one of OpenAI's three ways to stream
an answer. What differs between servers beyond that is an option here, never a special case by name.
"""

import ipaddress
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, field

from backends.contract import BackendGroup, BackendOptions

Protocol = Literal["responses-ws", "responses", "chat"]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Count = Annotated[int, Meta(ge=1)]


class UpstreamOptions(BackendOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of one server, as a backend of a group."""

    base_url: str  # up to and with its version, e.g. https://api.openai.com/v1
    upstream_model: str  # the server's own name for it
    group: BackendGroup
    protocol: Protocol = "chat"
    key_env: str | None = None  # the environment variable that holds the key
    key_header: Literal["authorization", "api-key"] = "authorization"
    window_tokens: Count = 131_072
    max_output_tokens: Count = 32_768
    max_num_seqs: Annotated[int, Meta(ge=1, le=4096)] = 64  # generations at once
    accepts_images: bool = False

    # How this server's dialect differs.
    seals_reasoning: bool = False  # it gives reasoning out encrypted and wants it back (Responses)
    custom_tools: Literal["function", "native"] = "function"  # native: Responses only
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    developer_role: Literal["system", "developer"] = "system"  # in chat messages
    omit: tuple[str, ...] = ()  # fields of the body that the server refuses
    extra_body: dict[str, Any] = field(default_factory=dict)  # that it wants besides

    # Sockets (responses-ws). One stream per socket unless the server can stop one by itself.
    max_streams_per_socket: Annotated[int, Meta(ge=1, le=16)] = 1  # OpenAI: 16 at once
    max_idle_sockets: Annotated[int, Meta(ge=1, le=1024)] = 16  # kept for conversations to go on
    cancel_event: bool = False  # it stops a response on `response.cancel`, as Lanewise does
    socket_max_age_s: Seconds = 1_200.0  # below xAI's 25 min and OpenAI's 60 min
    socket_max_idle_s: Seconds = 120.0

    # Going on by the server's own `previous_response_id` with new items alone. None: over sockets,
    # whose memory ends with them; over HTTP the server has to store responses, so it must be asked.
    chains: bool | None = None

    # Patience.
    connect_timeout_s: Seconds = 5.0
    first_token_timeout_s: Seconds = 120.0  # retries included
    idle_timeout_s: Seconds = 60.0  # between two events, once tokens came
    total_timeout_s: Seconds = 3_600.0
    max_retries: Annotated[int, Meta(ge=0, le=10)] = 2  # before the first token only
    retry_pause_s: Seconds = 0.2  # doubles with each retry
    max_retry_after_s: Seconds = 2.0  # a server that asks for longer is left alone meanwhile

    # Health.
    probe_path: str | None = "/models"  # asked for signs of life; None: none are needed
    probe_interval_s: Seconds = 10.0
    eject_after: Count = 5  # failures in a row
    ejection_s: Seconds = 30.0  # times the number of ejections, up to ten times
    slow_start_s: Annotated[float, Meta(ge=0, le=3_600)] = 30.0

    @property
    def continues(self) -> bool:
        """Whether conversations go on from what the server remembers."""
        return self.protocol == "responses-ws" if self.chains is None else self.chains

    @property
    def stores(self) -> bool:
        """Whether the server is asked to store responses."""
        return self.protocol == "responses" and self.continues


def check_options(options: UpstreamOptions) -> None:
    """Check what the types cannot.

    Raises:
        ValueError: Naming the field.
    """
    # The address is the operator's, so private networks are fine: engines live there.
    url = urlsplit(options.base_url)
    if url.scheme not in ("http", "https", "ws", "wss") or not url.hostname:
        raise ValueError(f"base_url: expected http(s)://HOST[:PORT]/v1, got {options.base_url!r}")
    if url.username or url.password or url.query or url.fragment:
        raise ValueError("base_url: no credentials, query or fragment; keys come by key_env")
    if _is_link_local(url.hostname):
        raise ValueError(f"base_url: {url.hostname} is link-local: clouds serve secrets there")
    if options.max_streams_per_socket > 1 and not options.cancel_event:
        raise ValueError(
            "max_streams_per_socket: streams may share a socket only where cancel_event is true; "
            "elsewhere one is stopped by closing its socket"
        )
    if options.chains and options.protocol == "chat":
        raise ValueError("chains: chat completions know no previous_response_id")
    if options.custom_tools == "native" and options.protocol == "chat":
        raise ValueError('custom_tools: "native" needs one of the Responses protocols')


def http_url(options: UpstreamOptions, path: str) -> str:
    """The address of a path over HTTP."""
    scheme, _, rest = options.base_url.partition("://")
    secure = "s" if scheme.lower() in ("https", "wss") else ""
    return f"http{secure}://{rest.rstrip('/')}{path}"


def socket_url(options: UpstreamOptions) -> str:
    """The address of the Responses WebSocket."""
    return "ws" + http_url(options, "/responses").removeprefix("http")


def _is_link_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_link_local
    except ValueError:
        return False
