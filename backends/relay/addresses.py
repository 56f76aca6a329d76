"""Refuses addresses in a relayed body that its server would fetch and that a client may not name.

Servers embed images, and some of them sound and video, in more dialects than one: chat messages
(vLLM), `image` of an input (SGLang, Jina), `image_url` of a content (Voyage), `images` (Cohere).
Such fields are found by their names, anywhere in the body. A text stays a text, whatever it says.
"""

import re
from collections.abc import Iterator
from typing import Any

from backends.relay.options import RelayOptions
from backends.upstream.addresses import check_address

_NAMES = re.compile(rb"image|video|audio|ur[il]|\\u", re.IGNORECASE)  # or one that is escaped
# Go's servers read names in any case.
_MEDIA = re.compile(r"images?|videos?|audios?|\w+ur[il]s?", re.IGNORECASE)
_ADDRESS = re.compile(r"\w*ur[il]s?", re.IGNORECASE)  # in an object that is media
_NOT_FETCHED = ("metadata", "user", "model")

# Some servers take the content itself, without a scheme. A path is mostly shorter, or has a dot;
# JPEGs begin with a slash.
_CONTENT = re.compile(r"(?:/9j/|[A-Za-z0-9+])[A-Za-z0-9+/\s]{60,}={0,2}\s*")


def names_media(body: bytes) -> bool:
    """Says whether a body may name what its server would fetch, which few do."""
    return _NAMES.search(body) is not None


def check_relayed(fields: dict[str, Any], relay: str, options: RelayOptions) -> None:
    """Raises `BackendError`, which names the field, for an address that may not be fetched."""
    for param, address in _named({k: v for k, v in fields.items() if k not in _NOT_FETCHED}):
        if _CONTENT.fullmatch(address) is None:
            check_address(param, address, relay, options)


def _named(fields: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields each field that holds an address, and the address."""
    # With what a field is called, what it holds, and whether that is media.
    left: list[tuple[str, Any, bool]] = [("", fields, False)]
    while left:
        param, value, is_media = left.pop()
        if isinstance(value, str):
            if is_media and value:
                yield param, value
        elif isinstance(value, list):
            left += [(f"{param}[{n}]", e, is_media) for n, e in enumerate(value) if _holds(e)]
        else:
            for name, entry in value.items():
                if _holds(entry):
                    where = f"{param}.{name}" if param else name
                    left.append((where, entry, _is_media(name, entry, is_within=is_media)))


def _holds(value: Any) -> bool:
    return isinstance(value, str | list | dict)


def _is_media(name: str, value: Any, *, is_within: bool) -> bool:
    """Says whether a field is media; `is_within` an object that is, a text may be anything else."""
    pattern = _ADDRESS if is_within and isinstance(value, str) else _MEDIA
    return pattern.fullmatch(name) is not None
