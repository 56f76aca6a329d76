"""Tests what `lanewise backends list` says of a backend that says little of itself."""

from typing import Any

import pytest

from gateway.cli.main import main

UPSTREAM = {
    "name": "far",
    "group": "deep",
    "model": "m",
    "healthy": True,
    "drained": False,
    "running": 3,
    "waiting": 0,
    "max_num_seqs": 0,
    "kv_used_tokens": 0,
    "kv_capacity_tokens": 0,
}


def test_what_a_backend_does_not_say_is_no_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*_: Any, **__: Any) -> list[dict[str, Any]]:
        return [UPSTREAM]

    monkeypatch.setattr("gateway.cli.admin.backends.ask_admin", ask)
    assert main(["backends", "list"]) == 0
    (row,) = capsys.readouterr().out.splitlines()[1:]
    assert "3 of ?" in row
    assert row.split()[-1] == "-", "and no share of its KV cache"
