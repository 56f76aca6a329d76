"""The fast engine hands sub-tasks to the deep one, and a client steers or cancels one of them."""

from typing import Any

import pytest

from tests.e2e.events import Event, check_response
from tests.e2e.gateway_process import FAST_ONLY_KEY, GatewayProcess
from tests.e2e.socket_client import TERMINALS, SocketClient

ASK = "What is a mutex? Then prove in 2 sentences that our lock manager is fair."
LONG_ASK = "What is a mutex? Then prove in 3,000 words that our lock manager is fair."


async def handed_on(connection: SocketClient, **body: Any) -> tuple[str, str]:
    """Returns a response whose sub-task speaks; ids of both."""
    await connection.create(LONG_ASK, model="auto", metadata={"strategy": "delegate"}, **body)
    told = await connection.until(lambda event: bool(delegations(event)))
    ((subtask_id, state),) = delegations(told).items()
    assert state == "running"
    await connection.until(
        lambda event: (
            event["type"] == "response.reasoning_summary_text.delta" and event["output_index"] == 2
        )
    )
    return told["response"]["id"], subtask_id


def delegations(event: Event) -> dict[str, str]:
    """Returns the sub-tasks that an event tells of: id -> state."""
    routing = event.get("response", {}).get("routing", {})
    return {row["id"]: row["state"] for row in routing.get("delegations", [])}


def subtask_states(response: dict[str, Any]) -> list[str]:
    rows = response["routing"]["generations"]
    return [row["state"] for row in rows if row["part"] == "subtask"]


async def test_a_sub_task_is_commentary_and_the_fast_answer_goes_on(
    connection: SocketClient,
) -> None:
    response = await connection.turn(ASK, model="auto", metadata={"strategy": "delegate"})
    output = response["output"]
    assert [item["type"] for item in output] == [*["reasoning"] * 3, "message"]
    assert output[-1]["phase"] == "final_answer"
    routing = response["routing"]
    assert routing["answered_by"] == "wafer"
    assert routing["delegations"][0]["task"].startswith("Then prove in 2")
    answer = response["usage"]["output_tokens"]
    assert 0 < answer < routing["usage"]["wafer"]["output_tokens"], "without what was said beside"
    assert routing["usage"]["gpu"]["output_tokens"] > 20
    after = await connection.turn(
        "How many messages have I sent so far in this conversation?",
        previous_response_id=response["id"],
    )
    assert "2 messages" in str(after["output"])


async def test_a_plain_ask_is_not_handed_on(connection: SocketClient) -> None:
    response = await connection.turn(
        "What is a mutex?", model="auto", metadata={"strategy": "delegate"}, max_output_tokens=200
    )
    assert response["routing"]["delegations"] == []
    assert response["routing"]["usage"]["gpu"]["total_tokens"] == 0


@pytest.mark.parametrize("stream_id", [None, "main"])
async def test_one_sub_task_is_steered(connection: SocketClient, stream_id: str | None) -> None:
    named = {} if stream_id is None else {"stream_id": stream_id}
    response_id, subtask_id = await handed_on(connection, **named)
    await connection.send(
        {
            "type": "response.steer",
            "previous_response_id": subtask_id,
            "input": "Stop there. Reply with exactly: CONTRADICTION",
        }
    )
    accepted = await connection.next_type("response.steer.accepted", "response.steer.failed")
    assert accepted["type"] == "response.steer.accepted"
    assert accepted["steer"]["previous_response_id"] == subtask_id
    assert accepted.get("stream_id") == stream_id
    response = (await connection.terminal(stream_id))["response"]
    assert (response["id"], response["status"]) == (response_id, "completed")
    check_response(connection.received)
    assert subtask_states(response) == ["cancelled", "finished"]
    *_, proof, steered = (item["summary"][0]["text"] for item in response["output"][:-1])
    final = response["output"][-1]["content"][0]["text"]
    assert steered == "CONTRADICTION"
    assert "CONTRADICTION" not in proof
    assert response["output"][-1]["phase"] == "final_answer"
    assert final


async def test_one_sub_task_is_cancelled(connection: SocketClient) -> None:
    response_id, subtask_id = await handed_on(connection)
    await connection.send({"type": "response.cancel", "response_id": subtask_id})
    response = (await connection.terminal())["response"]
    assert (response["id"], response["status"]) == (response_id, "completed")
    check_response(connection.received)
    assert subtask_states(response) == ["cancelled"]
    assert response["routing"]["delegations"][0]["state"] == "cancelled"
    assert response["output"][-1]["phase"] == "final_answer"
    await connection.send({"type": "response.cancel", "response_id": subtask_id})
    assert (await connection.error())["error"]["code"] == "response_not_found"


async def test_whoever_cancels_the_response_is_told_that_its_sub_task_ended(
    connection: SocketClient,
) -> None:
    response_id, subtask_id = await handed_on(connection)
    await connection.send({"type": "response.cancel", "response_id": response_id})
    terminal = await connection.terminal()
    assert terminal["response"]["incomplete_details"] == {"reason": "cancelled"}
    assert delegations(terminal) == {subtask_id: "cancelled"}


async def test_a_tenant_without_the_deep_engine_gets_a_fast_answer(
    gateway: GatewayProcess,
) -> None:
    async with SocketClient.open(gateway, FAST_ONLY_KEY) as connection:
        await connection.create(ASK, model="auto", metadata={"strategy": "delegate"})
        terminal = await connection.next_type(*TERMINALS, "error")
    assert terminal["response"]["routing"]["route"] == "fast"
