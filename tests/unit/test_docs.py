"""The documents name files, packages and rooms that are there."""

import re
from pathlib import Path

import msgspec
import pytest

from gateway.config.config import Config
from tests.rooms import CLIENT, FLOORS, ROOMS

ROOT = Path(__file__).resolve().parents[2]
# What was true when it was written stays as it was: changelog and decisions.
DOCUMENTS = sorted(
    [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"],
)
CODE = re.compile(
    rf"`((?:{'|'.join((*FLOORS, 'sdk', 'tests', 'dashboards', 'deploy'))})/[\w./-]+)`"
)
DOTTED = re.compile(rf"`((?:{'|'.join(FLOORS)})(?:\.\w+)+)")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def is_there(path: str) -> bool:
    found = ROOT / path.rstrip("/")
    return found.exists() or found.with_suffix(".py").exists()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_names_is_there(document: Path) -> None:
    text = document.read_text()
    named = CODE.findall(text)
    links = [str((document.parent / link).resolve()) for link in LINK.findall(text)]
    missing = [path for path in (*named, *links) if not is_there(path)]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_dotted_names_in_a_document_are_modules_or_in_one(document: Path) -> None:
    for name in DOTTED.findall(document.read_text()):
        path = name.replace(".", "/")
        assert is_there(path) or is_there(path.rpartition("/")[0]), name


def test_the_architecture_shows_every_room() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for room in ROOMS:
        floor, _, rest = room.name.partition(".")
        shown = f"| `{rest.replace('.', '/')}/` |" if rest else f"`{floor}/`"
        assert floor == CLIENT or shown in text, room.name


# Sections whose settings stand in tables and examples of their own, which configuration.md links.
ELSEWHERE = {"connections", "memory", "waiting", "adaptation"}


def test_every_setting_is_among_the_configurations() -> None:
    named = re.findall(r"`([\w.]+)`", (ROOT / "docs" / "configuration.md").read_text())
    operations = (ROOT / "docs" / "operations.md").read_text()
    missing = []
    for section in msgspec.structs.fields(Config):
        kind = section.type
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            missing += [section.name] if section.name not in named else []
            continue
        for setting in msgspec.structs.fields(kind):
            is_told = f"{section.name}.{setting.name}" in named
            if section.name in ELSEWHERE:
                told = re.search(rf"\b{setting.name}\b", operations)
                is_told = section.name in named and told is not None
            missing += [] if is_told else [f"{section.name}.{setting.name}"]
    assert missing == []
