"""Builds requests and options for the tests of upstreams' translation."""

from typing import Any

from backends.contract import GenerateRequest, Item, TextFormat
from backends.prompt import measure, prompt_size
from backends.upstream.options import UpstreamOptions


def make_options(protocol: str = "chat", **fields: Any) -> UpstreamOptions:
    settings = {
        "base_url": "https://example.test/v1",
        "upstream_model": "theirs",
        "model": "ours",
        "group": "fast",
        "protocol": protocol,
        **fields,
    }
    return UpstreamOptions(**settings)


def make_request(*items: Item, **fields: Any) -> GenerateRequest:
    entries = tuple(measure(item) for item in items)
    num_tokens, prefix = prompt_size(None, (), TextFormat(), entries)
    settings: dict[str, Any] = {"max_output_tokens": 100, **fields}
    return GenerateRequest(
        id="resp_1",
        model="ours",
        items=entries,
        num_prompt_tokens=num_tokens,
        prefix=prefix,
        **settings,
    )
