"""Tests what `lanewise top` keeps of the events, and how it draws them."""

from typing import Any

from rich.console import Console

from gateway.top.picture import Picture, events
from gateway.top.screen import count, drawn, spark

GATEWAY = {"policy": "v3", "workers": 2, "num_gateways": 2, "running": 5, "connections": 9}
WAFER = {
    "name": "wafer",
    "group": "fast",
    "healthy": True,
    "running": 4,
    "waiting": 0,
    "max_num_seqs": 8,
    "kv_used_tokens": 0,
    "kv_capacity_tokens": 0,
}
POOL = {"group": "fast", "unit": "tokens", "limit": 200_000, "remaining": 50_000, "reset_s": 45.0}
PROBLEM = {
    "name": "engine_away gpu",
    "severity": "bad",
    "since": 100.0,
    "is_older": False,
    "words": "The backend gpu does not answer.",
    "todo": "See its log.",
    "runbook": "operations.md",
}


def decision(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"resp_{number}",
        "at": float(number),
        "tenant": "acme",
        "outcome": "ok",
        "route": "fast",
        "reason": "class",
        "ttft_ms": 12.4,
        "input_tokens": 20,
        "output_tokens": 15_000,
        **fields,
    }


def snapshot() -> dict[str, Any]:
    point = {"at": 99.0, "tokens_per_s": {"wafer": 900}, "tasks_per_s": {"fast": 2.0}, "running": 5}
    return {
        "at": 100.0,
        "gateway": GATEWAY,
        "backends": [WAFER],
        "problems": [],
        "pools": [{"tenant": "acme", "pools": [POOL]}],
        "decisions": [decision(1)],
        "history": [point],
    }


def text(picture: Picture, lost: str = "") -> str:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(drawn(picture, 120, 40, lost))
        return console.export_text()


def test_a_snapshot_and_then_changes() -> None:
    picture = Picture()
    picture.take("snapshot", snapshot())
    assert "Nothing is wrong." in text(picture)
    assert "4 of 8" in text(picture)
    assert "50.0k of 200.0k left" in text(picture)
    point = {"at": 101.0, "tokens_per_s": {"wafer": 1_800}, "tasks_per_s": {}, "running": 0}
    drained = WAFER | {"healthy": False, "drained": True}
    change = {"at": 101.0, "backends": [drained], "problems": [PROBLEM], "point": point}
    failed = decision(2, outcome="error", error="server_error", ttft_ms=None, strategy="hedge")
    picture.take("change", change | {"decisions": [failed, decision(1)]})
    assert picture.tokens_per_s() == picture.tokens_per_s("wafer") == [900, 1_800]
    assert [record["id"] for record in picture.decisions] == ["resp_2", "resp_1"]
    shown = text(picture)
    assert "The backend gpu does not answer." in shown
    assert "drained" in shown
    assert "server_error" in shown
    assert "gone" in text(picture, "gone")
    picture.take("snapshot", snapshot())
    assert len(picture.points) == 1, "a snapshot begins anew"


def test_a_tenant_whose_pools_cannot_be_read_stands_among_the_others() -> None:
    picture = Picture()
    unread = {"tenant": "broken", "pools": [], "fault": "one has another type"}
    picture.take("snapshot", snapshot() | {"pools": [unread, {"tenant": "acme", "pools": [POOL]}]})
    shown = text(picture)
    assert "one has another type" in shown
    assert "50.0k of 200.0k left" in shown


def test_nothing_was_told_yet() -> None:
    assert "no gateway answers" in text(Picture(), "no gateway answers")


def test_events() -> None:
    lines = [b"event: snapshot\n", b'data: {"at":1}\n', b"\n", b"event: change\n", b"data: {}\n"]
    assert list(events(lines)) == [("snapshot", {"at": 1}), ("change", {})]


def test_figures() -> None:
    assert [count(n) for n in (0, 950, 9_999, 12_345, 4.5e6, 2e9)] == [
        *("0", "950", "9999", "12.3k", "4.5M", "2.0G")
    ]
    assert spark([0, 1, 2, 4, 8], 4) == "▁▂▄█"
    assert spark([0, 0], 4) == "  "
    assert spark([], 4) == ""
