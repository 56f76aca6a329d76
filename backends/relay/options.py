"""Holds the options of a relay: a model that answers other requests than generations do."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from backends.configuration import Seconds
from backends.contract import BackendGroup
from backends.upstream.options import Count, UpstreamOptions, UrlScheme, check_options

RelayedPath = Literal["embeddings", "completions"]


class RelayOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Describes one model of one server, at one path of OpenAI's that is passed on as it is."""

    path: RelayedPath
    model: str  # the id that clients ask for
    base_url: str  # up to and with its version, e.g. https://api.openai.com/v1
    upstream_model: str | None = None  # the server's own name for it, if that is another
    group: BackendGroup = "fast"  # whose pools are charged
    key_env: str | None = None  # the environment variable that holds the key
    key_header: Literal["authorization", "api-key"] = "authorization"
    # What the server may fetch that a request names, as some do to embed images.
    url_schemes: tuple[UrlScheme, ...] = ("data", "https")
    private_urls: bool = False  # from addresses that are not public, too
    max_output_tokens: Count = 32_768  # of all completions of one request
    max_answer_bytes: Annotated[int, Meta(ge=4_096)] = 32 << 20
    max_at_once: Annotated[int, Meta(ge=1, le=4_096)] = 64
    connect_timeout_s: Seconds = 5.0
    total_timeout_s: Seconds = 300.0

    def upstream(self) -> UpstreamOptions:
        """Returns the options of the server; raises ValueError that names an invalid one."""
        options = UpstreamOptions(
            model=self.model,
            base_url=self.base_url,
            upstream_model=self.upstream_model or self.model,
            group=self.group,
            key_env=self.key_env,
            key_header=self.key_header,
            max_num_seqs=self.max_at_once,
            connect_timeout_s=self.connect_timeout_s,
        )
        check_options(options)
        return options
