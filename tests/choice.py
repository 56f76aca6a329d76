"""Supports the commands of the tests: what `--only` names."""

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Named(Protocol):
    """Says what can be chosen."""

    @property
    def name(self) -> str: ...


Choice = TypeVar("Choice", bound=Named)


def chosen(given: str | None, known: Sequence[Choice]) -> list[Choice]:
    """Returns those of these names, with commas between; all if none. Exits on an unknown one."""
    names = given.split(",") if given else [one.name for one in known]
    if unknown := set(names) - {one.name for one in known}:
        raise SystemExit(f"nothing is named {', '.join(sorted(unknown))}; --list says what is")
    return [one for one in known if one.name in names]
