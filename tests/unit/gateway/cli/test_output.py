"""Tests what a command prints of others' words."""

import argparse

import pytest

from gateway.cli.output import show_table


def test_a_cell_is_one_line_and_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": "a", "name": "ci\x1b]0;owned\x07\nb  forged"}, {"id": "b", "name": "größer"}]
    show_table(argparse.Namespace(json=False), rows, ("id", "name"), nothing="None.")
    assert capsys.readouterr().out.splitlines() == [
        "ID  NAME",
        "a   ci]0;owned b  forged",
        "b   größer",
    ]


def test_no_rows_are_told_in_words_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    for json in (False, True):
        assert show_table(argparse.Namespace(json=json), [], ("id",), nothing="No key.") == 0
    assert capsys.readouterr().out == "No key.\n[]\n"
