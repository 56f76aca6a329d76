"""Refuses addresses in a prompt that an upstream would fetch and that a client may not name.

Images and files can be named by URL, and the upstream fetches it: from its own network, with its
own rights. So only some schemes pass, and no host that is plainly not public. A public name that
resolves to a private address passes: only the server that fetches it can see that.
"""

import ipaddress
import unicodedata
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import unquote, urlsplit

from backends.contract import (
    BackendError,
    CustomToolCallOutput,
    FilePart,
    FunctionCallOutput,
    GenerateRequest,
    ImagePart,
    Message,
    TextPart,
)
from backends.upstream.options import UpstreamOptions

MAX_SHOWN_CHARS = 80  # of an address, in a message

# Names that no public resolver knows (RFC 6761, 6762, 8375; .internal: ICANN, 2024-07).
_PRIVATE_SUFFIXES = (".localhost", ".local", ".localdomain", ".internal", ".home.arpa")
_IDEOGRAPHIC_STOP = "\u3002"  # a dot between labels (UTS 46, 4.5), which NFKC leaves as it is
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address


class AddressOptions(Protocol):
    """Says which addresses a server may be sent."""

    @property
    def model(self) -> str: ...

    @property
    def url_schemes(self) -> Sequence[str]: ...

    @property
    def private_urls(self) -> bool: ...


def check_addresses(request: GenerateRequest, backend: str, options: UpstreamOptions) -> None:
    """Raises `BackendError`, which names the field, for an address that may not be fetched.

    Items are numbered in the whole context, which begins with what the request continues.
    """
    for number, entry in enumerate(request.items):
        item = entry.item
        if isinstance(item, Message):
            parts, field = item.content, "content"
        elif isinstance(item, (FunctionCallOutput, CustomToolCallOutput)):
            parts, field = item.output, "output"
        else:
            continue
        for index, part in enumerate(parts):
            if isinstance(part, TextPart):
                continue
            name = f"input[{number}].{field}[{index}]"
            if isinstance(part, ImagePart) and part.image_url is not None:
                check_address(f"{name}.image_url", part.image_url, backend, options)
            elif isinstance(part, FilePart) and part.file_url is not None:
                check_address(f"{name}.file_url", part.file_url, backend, options)


def check_address(param: str, address: str, backend: str, options: AddressOptions) -> None:
    """Raises `BackendError` for an address that may not be fetched; `param` is its field."""
    why = _objection(address, options)
    if why is not None:
        schemes = ", ".join(f"{scheme}:" for scheme in options.url_schemes)
        where = "" if options.private_urls else " of public hosts"
        code = "invalid_image_url" if "image" in param.lower() else "invalid_value"
        message = (
            f"Invalid '{param}': {why}. Model '{options.model}' takes {schemes} URLs{where}. "
            "Send the content itself as a data: URL or as file_data."
        )
        raise BackendError(backend, code, message, retryable=False, param=param)


def _objection(address: str, options: AddressOptions) -> str | None:
    """Says why an address may not be fetched; None if it may."""
    shown = repr(address[:MAX_SHOWN_CHARS])
    scheme, colon, _ = address[:16].partition(":")
    if not colon or scheme.lower() not in options.url_schemes:
        return f"{shown} is of no scheme that is taken"
    if scheme.lower() == "data":
        return None
    # Parsers differ on these, so the server might read another host than is read here.
    if any(char <= " " or char in "\\\x7f" for char in address):
        return f"{shown} has white space, control characters or a backslash"
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        return f"{shown} is no valid URL"
    if not host or "@" in parts.netloc:
        return f"{shown} has no host, or credentials before it"
    if not options.private_urls and _is_private(host):
        return f"the host of {shown} is not public"
    return None


def _is_private(host: str) -> bool:
    """Returns whether a host is plainly not public, in any notation that URLs allow for it."""
    # Browsers and their libraries read 127.0.0.1 from %31%32%37.0.0.1 and from full-width digits.
    name = unicodedata.normalize("NFKC", unquote(host)).lower().replace(_IDEOGRAPHIC_STOP, ".")
    # They drop soft hyphens and the like, too: what is private without them is so with them.
    bare = "".join(filter(str.isascii, name))
    is_single = "." not in name.rstrip(".") and ":" not in name
    return is_single or _is_plainly_private(name) or (bare != name and _is_plainly_private(bare))


def _is_plainly_private(name: str) -> bool:
    name = name.rstrip(".")
    found = _ip_address(name.partition("%")[0])
    if found is None:
        return f".{name}".endswith(_PRIVATE_SUFFIXES)
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF)
        found = inner or found
        if isinstance(found, ipaddress.IPv6Address) and (found.is_reserved or found.is_site_local):
            return True  # such as ::127.0.0.1 and fec0::1, which `is_global` takes for public
    return not found.is_global or found.is_multicast


def _ip_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Reads an address as URL parsers do (WHATWG URL, 3.5): 127.1, 0x7f000001 and 017700000001."""
    if ":" in name:
        try:
            return ipaddress.IPv6Address(name)
        except ValueError:
            return ipaddress.IPv6Address(0)  # no name has a colon, so it is not public either
    labels = name.split(".")
    numbers = [_number(label) for label in labels]
    if numbers[-1] is None:
        return None
    value = numbers[-1]
    for place, number in enumerate(numbers[:-1]):
        value += (number or 0) << 8 * (3 - place) if place < 3 else 0
    return ipaddress.IPv4Address(value & 0xFFFF_FFFF)


def _number(label: str) -> int | None:
    for prefix, base in (("0x", 16), ("0", 8), ("", 10)):
        if label.startswith(prefix) and label != prefix:
            try:
                return int(label[len(prefix) :], base)
            except ValueError:
                continue
    return 0 if label in ("0", "0x") else None
