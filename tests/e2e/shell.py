"""Runs commands that administer a gateway, as tests give them."""

import json
from typing import Any

import pytest

from gateway.cli.main import main
from tests.e2e.gateway_process import GatewayProcess


class Shell:
    """Runs commands against one gateway: most in this process, which is quick."""

    def __init__(self, gateway: GatewayProcess, capsys: pytest.CaptureFixture[str]) -> None:
        self._url = gateway.url
        self._capsys = capsys

    def __call__(self, words: str) -> str:
        status = main([*words.split(), "--url", self._url])
        printed = self._capsys.readouterr()
        assert status == 0, printed.err
        return printed.out

    def json(self, words: str) -> Any:
        return json.loads(self(f"{words} --json"))

    def refused(self, words: str) -> str:
        assert main([*words.split(), "--url", self._url]) == 2
        return self._capsys.readouterr().err
