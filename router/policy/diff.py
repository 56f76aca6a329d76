"""Compares two policies by their fields, regardless of how their documents are written."""

from collections.abc import Iterator
from typing import Any

import msgspec

from router.policy.policy import Policy


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """Holds one field that differs; null means that the field is absent."""

    path: str  # rules["deep-canary"].percent
    from_: Any
    to: Any


def policy_changes(old: Policy, new: Policy) -> list[PolicyChange]:
    """Lists every field that differs; rules match by name, so a move changes `place` alone."""
    before = dict(_fields(msgspec.to_builtins(old), ""))
    after = dict(_fields(msgspec.to_builtins(new), ""))
    return [
        PolicyChange(path=path, from_=before.get(path), to=after.get(path))
        for path in [*before, *(path for path in after if path not in before)]
        if before.get(path) != after.get(path)
    ]


def _fields(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _fields(entry, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(entry, dict) for entry in value):
        for position, entry in enumerate(value):
            name = entry.get("name") if isinstance(entry, dict) else None
            step = f"{path}[{position}]" if name is None else f'{path}["{name}"]'
            if name is not None:
                yield f"{step}.place", position + 1
            yield from _fields(entry, step)
    elif value is not None:
        yield path, value
