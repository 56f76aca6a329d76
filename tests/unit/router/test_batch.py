"""Batches: one line out for each line in, in order, in the agreed schema."""

import json

import pytest

from router.batch import decide_batch
from router.classify import Band


def decide(*lines: bytes, **options: Band) -> list[dict[str, object]]:
    clock = iter(range(0, 10**9, 5_000))
    return [json.loads(line) for line in decide_batch(lines, lambda: next(clock), **options)]


def ask(text: str, name: str = "a") -> bytes:
    return json.dumps({"id": name, "text": text, "more": 1}).encode()


def test_schema() -> None:
    (row,) = decide(ask("fix the typo"))
    assert {name: type(value) for name, value in row.items()} == {
        "id": str,
        "lane": str,
        "p_deep": float,
        "security": bool,
        "p_security": float,
        "p_need_large": float,
        "out_tokens": float,
        "route_us": float,
        "signals": list,
    }
    assert row["route_us"] == 5.0


@pytest.mark.parametrize(
    ("text", "lane", "security"),
    [
        ("fix the typo", "interactive", False),
        ("Refactor the storage engine across the entire codebase", "deep", False),
        ("Fix the sql injection", "deep", True),
    ],
)
def test_lanes(text: str, lane: str, security: bool) -> None:
    (row,) = decide(ask(text))
    assert (row["lane"], row["security"]) == (lane, security)


def test_what_the_band_leaves_open_goes_to_both() -> None:
    (row,) = decide(ask("fix the typo"), band=Band(low=0.0, high=1.0))
    assert row["lane"] == "parallel"


def test_order_and_errors() -> None:
    rows = decide(ask("a", "1"), b"\n", b"not json", b'{"id": "x"}', ask("", "2"), b'{"id":3}')
    assert [row["id"] for row in rows] == ["1", None, None, "2", None]
    assert str(rows[1]["error"]).startswith("line 3: JSON is malformed")
    assert "text" in str(rows[2]["error"])
