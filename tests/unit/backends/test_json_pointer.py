"""References of JSON schemas are followed within their document."""

from typing import Any

import pytest

from backends.json_pointer import pointed_at

DOCUMENT: dict[str, Any] = {"a": {"b/c": [1, {"~": 2}]}, "": {"": 3}, "1": 4}


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#", DOCUMENT),
        ("#/a/b~1c/0", 1),
        ("#/a/b~1c/1/~0", 2),
        ("#//", 3),
        ("#/1", 4),
    ],
)
def test_what_is_pointed_at_is_found(reference: str, found: Any) -> None:
    assert pointed_at(reference, DOCUMENT) == found


@pytest.mark.parametrize(
    "reference", ["#/b", "#/a/b~1c/2", "#/a/b~1c/-1", "#/a/b~1c/x", "#/1/0", "#/a/b~1c/0/0"]
)
def test_what_is_not_there_is_an_error(reference: str) -> None:
    with pytest.raises(LookupError):
        pointed_at(reference, DOCUMENT)
