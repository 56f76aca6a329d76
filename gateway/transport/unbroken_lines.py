"""Escapes what some clients take for the end of a line within a server-sent event.

The standard knows CR and LF alone, which JSON escapes anyway. But Python's `str.splitlines` also
ends a line at U+0085, U+2028 and U+2029, and so do the clients built on it: openai before 1.14,
httpx-sse 0.4.0, and whatever reads a stream by httpx's `iter_lines`. They lose the event, or fail.
"""

# Bytes that one of them has to have, for `in`: a call for each write would be dear. The first is
# also the beginning of dashes and typographic quotes.
LINE_SEPARATORS, NEXT_LINE = b"\xe2\x80", b"\xc2\x85"


def unbroken(body: bytes) -> bytes:
    """Returns a body, all of whose text is in JSON, with these characters as JSON's escapes."""
    body = body.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return body.replace(NEXT_LINE, b"\\u0085")
