"""Offers a WebSocket client that blocks and does no more: `http.client`'s counterpart.

`websockets.sync` reads in a thread of its own, and waking another thread takes longer than the
gateway needs for some of its steps; clients in asyncio and in other languages have no such step.
"""

import socket
import ssl
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

READ_BYTES = 1 << 16
TIMEOUT_S = 60.0  # bounds a hang


class PlainSocket:
    """Is one connection over TLS; text messages in and out."""

    def __init__(self, url: str, trusting: ssl.SSLContext, headers: Mapping[str, str]) -> None:
        """Connects; raises what the library does where the server will not."""
        uri = parse_uri(url)
        plain = socket.create_connection((uri.host, uri.port), TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = trusting.wrap_socket(plain, server_hostname=uri.host)
        self._protocol = ClientProtocol(uri, max_size=None)
        self._arrived: deque[str] = deque()
        request = self._protocol.connect()
        request.headers.update(headers)
        self._protocol.send_request(request)
        self._flush()
        while self._protocol.state is State.CONNECTING:
            self._read()
        if self._protocol.handshake_exc is not None:
            raise self._protocol.handshake_exc

    def send(self, text: str) -> None:
        """Send one message."""
        self._protocol.send_text(text.encode())
        self._flush()

    def recv(self) -> str:
        """Returns the next message."""
        while not self._arrived:
            self._read()
        return self._arrived.popleft()

    def _read(self) -> None:
        arrived = self._socket.recv(READ_BYTES)
        if not arrived:
            raise ConnectionError(f"the server closed: {self._protocol.close_exc}")
        self._protocol.receive_data(arrived)
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                assert event.fin, "the gateway's messages are whole"
                self._arrived.append(bytes(event.data).decode())
        self._flush()

    def _flush(self) -> None:
        for content in self._protocol.data_to_send():
            if content:
                self._socket.sendall(content)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()
