"""Answers HTTP/1.0, which knows no chunks: a body ends as its connection does (RFC 9112 6.1).

uvicorn closes after its answer to HTTP/1.0, but sends a body of unknown length in chunks all the
same, which such a client takes for the body. This is an edge.
"""

from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class CycleUntilClose(RequestResponseCycle):
    """Handles a request in HTTP/1.0 and its response."""

    _is_unbounded = False  # the length of the body is not known

    async def send(self, message: Any) -> None:
        """Sends as uvicorn does, but no chunks."""
        if message["type"] == "http.response.start":
            self.keep_alive = False
            names = [name.lower() for name, _ in message.get("headers", ())]
            self._is_unbounded = b"content-length" not in names
            if self._is_unbounded:
                self.chunked_encoding = False
        elif self._is_unbounded:  # what there is now is all that is expected
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)
