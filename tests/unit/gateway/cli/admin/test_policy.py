"""Tests what the policy commands print of the admin API's answers."""

from typing import Any

import pytest

from gateway.cli.main import main

ROW = {"version": 2, "at": 0.0, "author": "ada", "label": "", "comment": ""}


@pytest.mark.parametrize(
    ("active", "running", "marked", "warns"),
    [(2, 2, 2, False), (0, 0, 0, False), (0, 2, 2, True), (2, 0, 0, True)],
)
def test_the_list_marks_what_runs_and_warns_where_redis_names_another(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    active: int,
    running: int,
    marked: int,
    warns: bool,
) -> None:
    def ask(*_: Any, **__: Any) -> dict[str, Any]:
        in_force = {"version": running, "source": "", "shadow": None}
        return {"active": active, "shadow": None, "in_force": in_force, "versions": [ROW]}

    monkeypatch.setattr("gateway.cli.admin.policy.ask_admin", ask)
    assert main(["policy", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if "in force" in line)
    assert line.split()[0] == str(marked)
    assert ("Redis names" in lines[-1]) is warns


@pytest.mark.parametrize(("label", "shown"), [("mine", True), ("default", False)])
def test_a_document_without_a_name_of_its_own_is_not_listed_as_the_default_policy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], label: str, shown: bool
) -> None:
    def ask(*_: Any, **__: Any) -> dict[str, Any]:
        in_force = {"version": 2, "source": "", "shadow": None}
        return {
            "active": 2,
            "shadow": None,
            "in_force": in_force,
            "versions": [ROW | {"label": label}],
        }

    monkeypatch.setattr("gateway.cli.admin.policy.ask_admin", ask)
    assert main(["policy", "list"]) == 0
    assert (label in capsys.readouterr().out) is shown


def test_a_version_that_is_in_force_and_the_shadow_is_marked_as_both(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*_: Any, **__: Any) -> dict[str, Any]:
        in_force = {"version": 2, "source": "", "shadow": 2}
        return {"active": 2, "shadow": 2, "in_force": in_force, "versions": [ROW]}

    monkeypatch.setattr("gateway.cli.admin.policy.ask_admin", ask)
    assert main(["policy", "list"]) == 0
    assert "    2  in force, shadow  " in capsys.readouterr().out
