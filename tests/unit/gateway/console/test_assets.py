"""Tests the console's files: all in the package, small, and with no script or style of others."""

import gzip
import posixpath
import re

import brotli
import pytest

from gateway.console.assets import ROOT, asset, paths

OWN = sorted(path for path in paths() if not path.startswith("vendor/"))
# What *Play* loads before anything else, and all pages but *Policies*, packed.
MAX_PACKED_BYTES = 60 * 1024
MAX_LINES = 300
FIRST_IMPORT, ANY_IMPORT = r'(?:from|import)\s*"(\.[^"]+)"', r'(?:from|import)\(?\s*"(\.[^"]+)"'


def text_of(path: str) -> str:
    return ROOT.joinpath(*path.split("/")).read_text()


@pytest.mark.parametrize("path", sorted(paths()))
def test_every_coding_holds_the_file(path: str) -> None:
    found = asset(path)
    content = found.bodies[""]
    if "br" in found.bodies:
        assert brotli.decompress(found.bodies["br"]) == content
        assert gzip.decompress(found.bodies["gzip"]) == content


def test_the_best_coding_that_is_accepted() -> None:
    page = asset("app.js")
    assert page.best("gzip, deflate, br, zstd") == "br"
    assert page.best("gzip;q=1.0, identity") == "gzip"
    assert page.best("identity") == ""
    assert page.best("br;q=0, gzip; q=0.5") == "gzip"  # RFC 9110 12.4.2: a weight of 0 refuses
    assert page.best("br; Q=0.000, gzip;q=0") == ""
    assert asset("icon.svg").best("br") == ""  # too small to gain by it


def test_all_but_policies_is_small() -> None:
    light = [p for p in paths() if p not in ("vendor/codemirror.js", "vendor/LICENSES.txt")]
    light = [path for path in light if not path.startswith("policies/")]
    sizes = {path: min(len(body) for body in asset(path).bodies.values()) for path in light}
    first = {path for path in light if not path.startswith("tenants/")}
    assert sum(sizes[path] for path in first) <= MAX_PACKED_BYTES


@pytest.mark.parametrize("path", OWN)
def test_own_files_are_short_and_inline_nothing(path: str) -> None:
    text = text_of(path)
    assert len(text.splitlines()) <= MAX_LINES
    assert not re.search(r"innerHTML|dangerouslySet|localStorage|document\.cookie|eval\(", text)
    assert not re.search(r"(src|href|from|import)[=( ]*[\"'](https?:)?//", text)
    if path.endswith(".html"):
        assert not re.search(r"<style|style=|<script>|\son\w+=", text)


def test_the_page_names_all_modules_that_play_begins_with() -> None:
    found: set[str] = set()
    waiting = ["app.js", "play/page.js"]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += imports_of(path)
    preloaded = re.findall(r'rel="modulepreload" href="([^"]+)"', text_of("index.html"))
    assert sorted(preloaded) == sorted(found - {"app.js"})


def imports_of(path: str, pattern: str = FIRST_IMPORT) -> list[str]:
    """Returns the files that a module imports: as it begins, or ever."""
    imported = re.findall(pattern, text_of(path))
    return [
        posixpath.normpath(f"{posixpath.dirname(path)}/{each}".lstrip("/")) for each in imported
    ]


@pytest.mark.parametrize("path", [path for path in OWN if path.endswith(".js")])
def test_every_import_is_a_file_of_the_package(path: str) -> None:
    assert set(imports_of(path, ANY_IMPORT)) <= paths()
