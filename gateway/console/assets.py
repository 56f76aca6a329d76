"""Reads the console's files from the package, each once, with its packed forms.

This is an edge.
"""

import gzip
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

import brotli  # type: ignore[import-untyped]
import msgspec

ROOT = resources.files(__package__).joinpath("static")
MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
_BROTLI_QUALITY = 9  # of 11: the last two win a hundredth and take ten times as long
_MIN_PACKED_BYTES = 512
_REFUSED = re.compile(r";\s*q=0(\.0*)?\s*$", re.IGNORECASE)  # a coding's weight (RFC 9110 12.4.2)


class Asset(msgspec.Struct, frozen=True):
    """Holds one file as it is sent."""

    media_type: str
    etag: str
    bodies: Mapping[str, bytes]  # by content coding; "" is the file as it is

    def best(self, accepted: str) -> str:
        """Returns the coding to answer with, by the `Accept-Encoding` of a request."""
        taken = (each for each in accepted.split(",") if not _REFUSED.search(each))
        names = {each.partition(";")[0].strip() for each in taken}
        return next((coding for coding in ("br", "gzip") if coding in names & set(self.bodies)), "")


@cache
def paths() -> frozenset[str]:
    """Returns the path of every file below `static`."""
    return frozenset(_paths(ROOT, ""))


def _paths(folder: Traversable, prefix: str) -> list[str]:
    found: list[str] = []
    for each in folder.iterdir():
        if each.is_dir():
            found += _paths(each, f"{prefix}{each.name}/")
        elif each.name.rpartition(".")[2] in MEDIA_TYPES:
            found.append(prefix + each.name)
    return found


@cache
def asset(path: str) -> Asset:
    """Returns a file of `paths()`. Blocks for milliseconds, the first time."""
    content = ROOT.joinpath(*path.split("/")).read_bytes()
    bodies = {"": content}
    if len(content) >= _MIN_PACKED_BYTES:
        bodies["br"] = brotli.compress(content, quality=_BROTLI_QUALITY)
        bodies["gzip"] = gzip.compress(content, mtime=0)
    etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    return Asset(MEDIA_TYPES[path.rpartition(".")[2]], etag, bodies)
