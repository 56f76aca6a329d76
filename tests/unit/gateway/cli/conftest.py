"""Keeps the environment of whoever runs the tests from the commands that read it."""

import os

import pytest


@pytest.fixture(autouse=True)
def without_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("LANEWISE_"):
            monkeypatch.delenv(name)
