"""Tests a gateway of another release: what its answers lack is said in words."""

import http.server
import json
from collections.abc import Iterator

import pytest

from gateway.cli.main import main
from tests.threaded import serving

BACKEND = {"name": "gpu", "group": "deep", "model": "lanewise-deep"}  # of before there was more
POLICY_CHANGE = {"author": "ops", "action": "activate", "to": 1}


class _Older(http.server.BaseHTTPRequestHandler):
    """Answers as a gateway does that knows less than we ask for."""

    def do_GET(self) -> None:
        rows = [POLICY_CHANGE] if "audit" in self.path else [BACKEND]
        content = json.dumps(rows).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def older() -> Iterator[str]:
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Older)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.mark.parametrize("command", [["backends", "list"], ["policy", "history"]])
def test_what_an_older_gateway_does_not_say_is_no_traceback(
    older: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--url", older, "--admin-key", "sk-admin"]) not in (0, None)
    said = capsys.readouterr().err
    assert said.startswith("lanewise: the gateway's answer has no '")
    assert "of another release than this command" in said


def test_json_is_printed_as_it_came(older: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["backends", "list", "--url", older, "--admin-key", "sk-admin", "--json"]
    status = main(asked)
    out, err = capsys.readouterr()
    assert (status, json.loads(out or "null")) == (0, [BACKEND]), err
