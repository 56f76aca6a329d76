"""What escapes is logged once, and its answer names the log's id."""

from typing import Any

import pytest

from gateway.process.server import StandardHeaders


async def serve(app: Any) -> list[dict[str, Any]]:
    """Asks an application, and returns the messages that it sends."""
    sent: list[dict[str, Any]] = []

    async def receive() -> Any:
        raise AssertionError("the body is not read")

    async def send(message: Any) -> None:
        sent.append(message)

    scope: Any = {"type": "http", "method": "GET", "path": "/v1/models", "headers": []}
    await StandardHeaders(app)(scope, receive, send)
    return sent


async def test_what_escapes_is_a_500_whose_id_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError

    sent = await serve(app)
    assert sent[0]["status"] == 500
    [request_id] = [value for name, value in sent[0]["headers"] if name == b"x-request-id"]
    assert b"server_error" in sent[1]["body"]
    assert len(caplog.records) == 1
    assert request_id.decode() in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_what_escapes_after_the_answer_began_is_left_to_uvicorn() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await serve(app)
