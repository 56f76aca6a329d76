"""What is wrong is told clearly, and the same socket then completes a normal turn."""

import contextlib
import json
from typing import Any

import pytest
import websockets

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess
from tests.e2e.socket_client import SocketClient


def create(**body: Any) -> str:
    return json.dumps({"type": "response.create", "model": "lanewise-fast", "input": "x", **body})


def without(name: str) -> str:
    body = json.loads(create())
    del body[name]
    return json.dumps(body)


TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}

# What is sent -> the error's code and param.
MALFORMED: dict[str, tuple[str, str, str | None]] = {
    "empty": ("", "invalid_json", None),
    "space": ("  ", "invalid_json", None),
    "prose": ("hello", "invalid_json", None),
    "cut off": (create()[:-9], "invalid_json", None),
    "two objects": (create() * 2, "invalid_json", None),
    "trailing comma": ('{"type":"response.create",}', "invalid_json", None),
    "single quotes": ("{'type':'response.create'}", "invalid_json", None),
    "not a number": ('{"type":"response.create","temperature":NaN}', "invalid_json", None),
    "control character": ('{"type":"\x01"}', "invalid_json", None),
    "deep nesting": ("[" * 100_000, "invalid_json", None),
    "an array": ("[1, 2]", "invalid_type", None),
    "a string": ('"response.create"', "invalid_type", None),
    "null": ("null", "invalid_type", None),
    "a number": ("42", "invalid_type", None),
    "no type": ('{"model":"lanewise-fast"}', "missing_required_parameter", "type"),
    "null type": ('{"type":null}', "missing_required_parameter", "type"),
    "numeric type": ('{"type":7}', "invalid_type", "type"),
    "unknown type": ('{"type":"session.update"}', "unknown_event_type", "type"),
    "server's type": ('{"type":"response.completed"}', "unknown_event_type", "type"),
    "no model": (without("model"), "missing_required_parameter", "model"),
    "numeric model": (create(model=7), "invalid_type", "model"),
    "unknown model": (create(model="gpt-0"), "model_not_found", "model"),
    "no input": (without("input"), "missing_required_parameter", "input"),
    "numeric input": (create(input=7), "invalid_type", "input"),
    "empty input": (create(input=[]), "missing_required_parameter", "input"),
    "item is a string": (create(input=["x"]), "invalid_type", "input[0]"),
    "message without role": (
        create(input=[{"type": "message", "content": "x"}]),
        "missing_required_parameter",
        "input[0].role",
    ),
    "unknown role": (
        create(input=[{"role": "robot", "content": "x"}]),
        "invalid_value",
        "input[0].role",
    ),
    "call without output": (
        create(input=[{"type": "function_call_output", "call_id": "c"}]),
        "missing_required_parameter",
        "input[0].output",
    ),
    "background": (create(background=True), "unsupported_parameter", "background"),
    "unknown parent": (
        create(previous_response_id="resp_gone"),
        "previous_response_not_found",
        "previous_response_id",
    ),
    "numeric parent": (create(previous_response_id=7), "invalid_type", "previous_response_id"),
    "two parents": (
        create(previous_response_id="resp_a", conversation="conv_b"),
        "invalid_value",
        "conversation",
    ),
    "zero tokens": (create(max_output_tokens=0), "invalid_value", "max_output_tokens"),
    "tokens as text": (create(max_output_tokens="many"), "invalid_type", "max_output_tokens"),
    "hot": (create(temperature=99), "invalid_value", "temperature"),
    "store as text": (create(store="yes"), "invalid_type", "store"),
    "unknown effort": (
        create(reasoning={"effort": "enormous"}),
        "invalid_value",
        "reasoning.effort",
    ),
    "unknown truncation": (create(truncation="maybe"), "invalid_value", "truncation"),
    "too much metadata": (
        create(metadata={str(n): "x" for n in range(17)}),
        "invalid_value",
        "metadata",
    ),
    "numeric metadata": (create(metadata={"a": 1}), "invalid_type", "metadata.a"),
    "unknown route": (
        create(metadata={"route": "sideways"}),
        "invalid_value",
        "metadata.route",
    ),
    "tools as text": (create(tools="all"), "invalid_type", "tools"),
    "nameless tool": (
        create(tools=[{"type": "function", "parameters": {}}]),
        "missing_required_parameter",
        "tools[0].name",
    ),
    "choice of no tool": (
        create(tools=[TOOL], tool_choice={"type": "function", "name": "g"}),
        "invalid_value",
        "tool_choice",
    ),
    "choice of nothing": (create(tool_choice="whatever"), "invalid_value", "tool_choice"),
    "format without schema": (
        create(text={"format": {"type": "json_schema", "name": "x"}}),
        "missing_required_parameter",
        "text.format.schema",
    ),
    "bad stream id": (create(stream_id="a b"), "invalid_stream_id", "stream_id"),
    "cancel without id": (
        '{"type":"response.cancel"}',
        "missing_required_parameter",
        "response_id",
    ),
}


async def test_every_malformed_frame_gets_its_error_on_one_socket(
    connection: SocketClient,
) -> None:
    wrong: list[str] = []
    for name, (frame, code, param) in MALFORMED.items():
        await connection.socket.send(frame)
        event = await connection.error()
        got = (event["error"]["code"], event["error"].get("param"))
        message = event["error"]["message"]
        if got != (code, param) or len(message) < 15 or "Traceback" in message:
            wrong.append(f"{name}: expected {(code, param)}, got {got}: {message}")
        assert event["status"] == 400, event
        turn = await connection.turn("Go on.", max_output_tokens=16, store=False)
        assert turn["output"]
    assert not wrong, "\n".join(wrong)


async def test_a_lone_surrogate_breaks_nothing(connection: SocketClient) -> None:
    await connection.socket.send(create(input="\ud800 alone", max_output_tokens=16))
    event = await connection.next_type("error", "response.completed", "response.incomplete")
    assert event["type"] != "error" or event["status"] == 400
    assert (await connection.turn("Go on.", max_output_tokens=16))["output"]


async def test_too_long_a_context_is_refused_by_its_own_code(connection: SocketClient) -> None:
    await connection.create("word " * 600_000, model="lanewise-fast")
    error = await connection.error()
    assert error["error"]["code"] == "context_length_exceeded"
    assert (await connection.turn("Go on.", max_output_tokens=16))["output"]


async def test_a_fragmented_message_is_put_together(connection: SocketClient) -> None:
    text = create(max_output_tokens=16, store=False)
    await connection.socket.send(text[n : n + 10] for n in range(0, len(text), 10))
    assert (await connection.terminal())["response"]["output"]


async def test_megabytes_of_input_are_fine(connection: SocketClient) -> None:
    blob = "data:image/png;base64," + "A" * (6 << 20)
    message = {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "Hi."},
            {"type": "input_image", "image_url": blob, "detail": "low"},
        ],
    }
    await connection.create([message], model="auto", max_output_tokens=16)
    event = await connection.next_type("error", "response.completed", "response.incomplete")
    if event["type"] == "error":
        assert event["status"] == 400, event
        assert event["error"]["code"] != "message_too_large"
    assert (await connection.turn("Go on.", max_output_tokens=16))["output"]


async def test_a_message_beyond_the_limit_is_told_and_closed(gateway: GatewayProcess) -> None:
    async with SocketClient.open(gateway) as connection:
        await connection.socket.send(create(input="x" * (16 << 20)))
        error = await connection.error()
        assert error["status"] == 413
        assert error["error"]["code"] == "message_too_large"
        await connection.socket.wait_closed()
        assert connection.socket.close_code == 1009


@pytest.mark.parametrize("num_pieces", [1, 18])
async def test_a_message_far_beyond_the_limit_is_told_and_closed(
    gateway: GatewayProcess, num_pieces: int
) -> None:
    """It comes in one frame or many, and is refused before it is read to its end."""
    async with SocketClient.open(gateway) as connection:
        with contextlib.suppress(websockets.ConnectionClosed):
            piece = "x" * ((18 << 20) // num_pieces)
            await connection.socket.send(piece if num_pieces == 1 else [piece] * num_pieces)
        error = await connection.error()
        assert (error["status"], error["error"]["code"]) == (413, "message_too_large")
        assert f"A message may hold {16 << 20} bytes, got " in error["error"]["message"]
        await connection.socket.wait_closed()
        assert connection.socket.close_code == 1009


async def test_a_binary_message_closes_with_1003(gateway: GatewayProcess) -> None:
    async with SocketClient.open(gateway) as connection:
        await connection.socket.send(create().encode())
        await connection.socket.wait_closed()
        assert connection.socket.close_code == 1003
        assert "text" in (connection.socket.close_reason or "")


async def test_invalid_utf8_closes_with_1007(gateway: GatewayProcess) -> None:
    async with SocketClient.open(gateway) as connection:
        await connection.socket.send(b'{"type":"\xff\xfe"}', text=True)
        await connection.socket.wait_closed()
        assert connection.socket.close_code == 1007


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer sk-wrong"}])
async def test_a_bad_key_is_refused_before_the_upgrade(
    gateway: GatewayProcess, headers: dict[str, str]
) -> None:
    with pytest.raises(websockets.InvalidStatus) as refused:
        await websockets.connect(gateway.socket_url, additional_headers=headers)
    assert refused.value.response.status_code == 401
    assert refused.value.response.headers["www-authenticate"] == "Bearer"
    assert refused.value.response.body is not None
    body = json.loads(refused.value.response.body)
    assert body["error"]["code"] == "invalid_api_key"
    assert body["error"]["message"]


async def test_the_key_may_come_as_azure_clients_send_it(gateway: GatewayProcess) -> None:
    async with websockets.connect(
        f"{gateway.socket_url}?api-version=1", additional_headers={"api-key": DEVELOPMENT_KEY}
    ) as socket:
        assert (await SocketClient(socket).turn("Hi.", max_output_tokens=16))["output"]


async def test_a_tenants_limit_is_told_with_the_time_to_wait(gateway: GatewayProcess) -> None:
    async with SocketClient.open(gateway, "sk-small-tenant") as connection:
        for _ in range(8):  # more than both pools hold
            await connection.create("Hi.", model="auto", max_output_tokens=16)
            event = await connection.next_type("error", "response.completed", "response.incomplete")
            if event["type"] == "error":
                break
        assert event["type"] == "error"
        assert event["status"] == 429
        assert event["error"]["code"] == "rate_limit_exceeded"
        assert event["error"]["type"] == "rate_limit_error"
        assert 1 <= int(event["error"]["headers"]["retry-after"]) <= 60


async def test_a_tenant_without_access_is_refused(gateway: GatewayProcess) -> None:
    async with SocketClient.open(gateway, "sk-fast-only-tenant") as connection:
        await connection.create("Hi.", model="lanewise-deep")
        error = await connection.error()
        assert error["status"] in (400, 403)
        prompt = "Audit this login code for SQL injection and fix the vulnerability."
        response = await connection.turn(prompt, model="auto", max_output_tokens=16)
        assert response["routing"]["route"] == "fast", "the only one it may use"
