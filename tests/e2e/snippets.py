"""Finds the fenced blocks of README.md and docs/, and makes programs of them."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.e2e.gateway_process import ROOT

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELLS = frozenset({"sh", "console"})


@dataclass(frozen=True)
class Snippet:
    """Is one block."""

    page: str  # "docs/policies.md"
    line: int
    kind: str  # what the fence says: "sh", "toml"; may be empty
    text: str
    document: str  # the nearest TOML block before it on its page; empty if there is none

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def first(self) -> str:
        """Returns what tables name it by, with its page: it stays when lines are added above."""
        return self.text.partition("\n")[0].strip()

    @property
    def commands(self) -> list[str]:
        """Returns a shell's commands: what goes on after a backslash is one; comments stay."""
        text = self.text
        if self.kind == "console":  # the rest is what the commands print
            typed = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
            text = "\n".join(typed)
        return [line for line in re.split(r"(?<!\\)\n", text) if line.strip()]


def snippets() -> Iterator[Snippet]:
    for path in _PAGES:
        page = path.read_text()
        document = ""
        for found in _BLOCK.finditer(page):
            line = page.count("\n", 0, found.start()) + 1
            kind, text = found[1], found[2]
            yield Snippet(str(path.relative_to(ROOT)), line, kind, text, document)
            document = text if kind == "toml" else document


def shell_script(commands: list[str], statuses: Mapping[str, int]) -> str:
    """Writes one that ends at the first command that fails, and says which.

    `statuses` has the other statuses with which commands may end well, by how they begin.
    """
    lines = ["set -o pipefail"]
    for command in commands:
        also = next((number for start, number in statuses.items() if start in command), 0)
        told = f"echo {shlex.quote(f'failed: {command}')} >&2; exit 1"
        lines += ["{", command, f"}} || [ $? = {also} ] || {{ {told}; }}"]
    return "\n".join(lines) + "\n"
