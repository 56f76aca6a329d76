"""Ids that are unique without asking anyone: 48 hex digits of the system's randomness.

It is read by the page, since each reading is a system call.

An edge: it uses the operating system.
"""

import os
from collections.abc import Callable, Iterator

ID_CHARS = 48
_IDS_READ = 128


def _ids() -> Iterator[str]:
    while True:
        page = os.urandom(_IDS_READ * ID_CHARS // 2).hex()
        for start in range(0, len(page), ID_CHARS):
            yield page[start : start + ID_CHARS]


new_id: Callable[[], str] = _ids().__next__  # for the event loop's thread


def request_id_header() -> tuple[bytes, bytes]:
    """A new one, as every answer has it, and every socket that is let in."""
    return b"x-request-id", f"req_{new_id()}".encode()
