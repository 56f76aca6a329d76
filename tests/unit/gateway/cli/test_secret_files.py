"""Commands find their keys where a container has them: in the files that its environment names."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.main import main
from gateway.config.development import DEVELOPMENT_ADMIN_KEY


def asked_with(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Lets nobody answer, and keeps who was said to ask."""
    seen: list[str | None] = []

    def open_(_: object, request: urllib.request.Request, timeout: float) -> Any:
        seen.append(request.get_header("Authorization"))
        raise OSError("nobody is there")

    monkeypatch.setattr("urllib.request.OpenerDirector.open", open_)
    return seen


def test_an_admins_command_reads_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = asked_with(monkeypatch)
    path = tmp_path / "admin-key"
    path.write_text("sk-of-admin\n")
    monkeypatch.delenv("LANEWISE_ADMIN_KEY", raising=False)
    monkeypatch.setenv("LANEWISE_ADMIN_KEY_FILE", str(path))
    assert main(["policy", "list"]) == 2
    assert main(["policy", "list", "--admin-key", "sk-mine"]) == 2
    monkeypatch.delenv("LANEWISE_ADMIN_KEY_FILE")
    monkeypatch.setenv("LANEWISE_ADMIN_KEY", "")
    assert main(["policy", "list"]) == 2
    assert seen == ["Bearer sk-of-admin", "Bearer sk-mine", f"Bearer {DEVELOPMENT_ADMIN_KEY}"]


def test_a_file_that_is_not_there_is_a_finding_of_the_doctors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LANEWISE_API_KEY", raising=False)
    monkeypatch.setenv("LANEWISE_API_KEY_FILE", "/none/key")
    assert main(["doctor", "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["check"], finding["level"]) == ("configuration", "fail")
    assert "LANEWISE_API_KEY_FILE '/none/key'" in json.dumps(finding)
