"""Tests commands that administer, against what is no gateway, or breaks off: no traceback."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.cli import admin_client
from gateway.cli.main import main

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
CUT = HEAD + b"content-length: 1000\r\n\r\n[1,"
SILENT = HEAD + b"transfer-encoding: chunked\r\n\r\n"


@contextmanager
def answering(content: bytes) -> Iterator[str]:
    """Serves these bytes to each connection, which stays open until the end if they are silent."""
    over = threading.Event()

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            self.request.sendall(content)
            if content == SILENT:
                over.wait()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            over.set()
            server.shutdown()


@pytest.mark.parametrize(
    ("content", "command", "said"),
    [
        (b"-ERR unknown command\r\n", "keys list", "no gateway answers at"),
        (b"-ERR unknown command\r\n", "top --once", "no gateway answers at"),
        (CUT, "keys list", "broke off: IncompleteRead"),
        (HEAD + b"content-length: 3\r\n\r\n[1,", "keys list", "broke off: Expecting value"),
        (SILENT, "top --json", "broke off: timed out"),
    ],
)
def test_a_fault_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: bytes,
    command: str,
    said: str,
) -> None:
    monkeypatch.setattr(admin_client, "EVENTS_TIMEOUT_S", 0.2)
    with answering(content) as url:
        assert main([*command.split(), "--url", url]) == 2
    told = capsys.readouterr().err
    assert told.startswith("lanewise: ")
    assert said in told


@pytest.mark.parametrize("key", ["of\ntwo lines", "ключ"])
def test_what_can_be_no_key_is_no_gateway_that_does_not_answer(
    capsys: pytest.CaptureFixture[str], key: str
) -> None:
    assert main(["keys", "list", "--url", "http://127.0.0.1:9", "--admin-key", key]) == 2
    assert "the admin key has characters that no key has" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "option", "said"),
    [
        ("", "", "None was given, so the development one was sent"),
        ("wrong", "", "$LANEWISE_ADMIN_KEY or its file gave it"),
        ("wrong", "wrong, too", "This is what --admin-key gave."),
    ],
)
def test_a_refused_key_is_told_by_where_it_came_from(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    option: str,
    said: str,
) -> None:
    monkeypatch.setenv("LANEWISE_ADMIN_KEY", variable)
    body = b'{"error": {"message": "Incorrect admin key."}}'
    head = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: %d\r\n\r\n" % len(body)
    with answering(head + body) as url:
        assert main(["keys", "list", "--url", url, "--admin-key", option]) == 2
    assert capsys.readouterr().err == f"lanewise: Incorrect admin key. {said}" + (
        "\n" if said.endswith(".") else "; --admin-key gives another.\n"
    )


def test_this_machine_is_asked_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(HEAD + b"content-length: 2\r\n\r\n[]") as url, answering(CUT) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        assert main(["keys", "list", "--url", url, "--json"]) == 0
        assert capsys.readouterr().out == "[]\n"
        assert main(["keys", "list", "--url", "http://gateway.example", "--json"]) == 2
        assert "broke off: IncompleteRead" in capsys.readouterr().err
