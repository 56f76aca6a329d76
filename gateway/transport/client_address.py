"""Reads the client's address from what a trusted proxy says: PROXY protocol, or headers.

PROXY protocol, versions 1 and 2: https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt (read
2025-08). `Forwarded`: RFC 7239; `X-Forwarded-For` is what came before it.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

Network = IPv4Network | IPv6Network

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"  # of version 2
_BEGIN = b"PROXY "  # of version 1
_MAX_LINE_BYTES = 107  # of version 1, with its end
# Version 2 may carry 64 KiB of extensions (TLS details, ids); 2 KiB are more than balancers send.
MAX_HEADER_BYTES = 2_048
_ADDRESS_BYTES = {0x1: 4, 0x2: 16}  # by version 2's family
_FOR = re.compile(r"(?:^|;)\s*for\s*=\s*(\"[^\"]*\"|[^;\s]*)", re.IGNORECASE)


class ProxyHeaderError(ValueError):
    """The connection begins as PROXY protocol does, and breaks it."""


class ProxyHeader(NamedTuple):
    """Holds the length of a whole header, and the client's address in it."""

    num_bytes: int
    address: str | None  # None: the proxy speaks for itself, as in a health check


def parse_proxy_header(begin: bytes) -> ProxyHeader | None:
    """Reads a header from a connection's first bytes.

    Returns None while it is not whole; of zero bytes if the connection begins otherwise. Raises
    `ProxyHeaderError`.
    """
    if begin.startswith(SIGNATURE):
        return _parse_binary(begin)
    if begin.startswith(_BEGIN):
        return _parse_line(begin)
    if SIGNATURE.startswith(begin) or _BEGIN.startswith(begin):
        return None
    return ProxyHeader(0, None)


def _parse_line(begin: bytes) -> ProxyHeader | None:
    line, end, _ = begin[:_MAX_LINE_BYTES].partition(b"\r\n")
    if not end:
        if len(begin) >= _MAX_LINE_BYTES:
            raise ProxyHeaderError("version 1 without an end of its line")
        return None
    words = line.decode("latin-1").split(" ")
    num_bytes = len(line) + 2
    if words[1] == "UNKNOWN":
        return ProxyHeader(num_bytes, None)
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6") or (address := _ip(words[2])) is None:
        raise ProxyHeaderError("version 1 without addresses and ports")
    return ProxyHeader(num_bytes, str(address))


def _parse_binary(begin: bytes) -> ProxyHeader | None:
    if len(begin) < 16:
        return None
    command, family = begin[12], begin[13] >> 4
    num_bytes = 16 + int.from_bytes(begin[14:16], "big")
    if command >> 4 != 2 or command & 0xF > 1:
        raise ProxyHeaderError("neither version 1 nor 2, or an unknown command")
    if num_bytes > MAX_HEADER_BYTES:
        raise ProxyHeaderError(f"a header of {num_bytes} bytes; {MAX_HEADER_BYTES} are read")
    if len(begin) < num_bytes:
        return None
    width = _ADDRESS_BYTES.get(family)
    if command & 0xF == 0 or width is None:
        return ProxyHeader(num_bytes, None)
    if num_bytes < 16 + 2 * width + 4:
        raise ProxyHeaderError("version 2 without addresses and ports")
    packed = begin[16 : 16 + width]
    return ProxyHeader(num_bytes, str(ip_address(packed)))


def is_trusted(address: str, trusted: Sequence[Network]) -> bool:
    """Says whether an address is in one of the networks."""
    parsed = _ip(address)
    return parsed is not None and any(parsed in network for network in trusted)


def forwarded_address(
    headers: Iterable[tuple[bytes, bytes]], trusted: Sequence[Network]
) -> str | None:
    """Returns the client's address: the last one named that is no trusted proxy's.

    Each proxy appends whom it got the request from, so those before it may be the client's own
    invention. None: no header names one. `Forwarded` counts before `X-Forwarded-For`.
    """
    forwarded, older = [], []
    for name, value in headers:
        if name == b"forwarded":
            forwarded.append(value.decode("latin-1"))
        elif name == b"x-forwarded-for":
            older.append(value.decode("latin-1"))
    named = (
        [_FOR.search(element) for element in ",".join(forwarded).split(",")] if forwarded else []
    )
    hops = [found[1] if found else "" for found in named] or ",".join(older).split(",")
    for hop in reversed(hops):
        parsed = _ip(_without_port(hop))
        if parsed is None:
            return None  # hidden or broken: who stands before it is not to be believed
        if not any(parsed in network for network in trusted):
            return str(parsed)
    return None


def _without_port(hop: str) -> str:
    """Returns an address without quotes, brackets and port."""
    hop = hop.strip().strip('"')
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    host, _, port = hop.partition(":")
    return hop if ":" in port else host  # of IPv6 without brackets all is address


def _ip(text: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(text)
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return mapped or parsed
