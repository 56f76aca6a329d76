"""Makes unique ids: 48 random hex digits, read many at a time since reading is a system call.

This is an edge.
"""

import os
from collections.abc import Callable, Iterator

ID_CHARS = 48
_IDS_READ = 128
REQUEST_ID = "request_id"  # where the `state` of an ASGI scope holds it


def _ids() -> Iterator[str]:
    while True:
        page = os.urandom(_IDS_READ * ID_CHARS // 2).hex()
        for start in range(0, len(page), ID_CHARS):
            yield page[start : start + ID_CHARS]


new_id: Callable[[], str] = _ids().__next__  # for the event loop's thread


def request_id_header() -> tuple[bytes, bytes]:
    """Makes the request id header of a response or of an accepted socket."""
    return b"x-request-id", f"req_{new_id()}".encode()
