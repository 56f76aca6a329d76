"""Tests background responses on a fleet: any gateway polls and cancels them, and none hangs."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from openai import APIStatusError, BadRequestError, NotFoundError, OpenAI, RateLimitError

from tests.e2e.events import check_response_object
from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    NARROW_KEY,
    GatewayProcess,
    served,
    wait_until_at_rest,
)
from tests.e2e.leases import leases
from tests.e2e.socket_client import SocketClient

BOOK = "Write a book of 16,000 tokens."


@pytest.fixture(scope="module")
def other(folder: Path, redis_url: str) -> Iterator[GatewayProcess]:
    """Gives a second gateway on the same Redis."""
    with served(folder, "--redis", redis_url) as process:
        yield process
    assert "Traceback" not in process.log, process.log


@pytest.fixture
def elsewhere(other: GatewayProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=other.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
        yield client


def begin(client: OpenAI, **body: object) -> str:
    settings = {"model": "lanewise-deep", "input": BOOK, "max_output_tokens": 16_000, **body}
    response = client.responses.create(background=True, **settings)  # type: ignore[call-overload]
    assert response.status in ("queued", "in_progress")
    return str(response.id)


def test_another_gateway_polls_and_cancels_it(
    client: OpenAI, elsewhere: OpenAI, gateway: GatewayProcess
) -> None:
    response_id = begin(client)
    assert elsewhere.responses.retrieve(response_id).status == "in_progress"
    deadline = time.monotonic() + 60.0
    while (cancelled := elsewhere.responses.cancel(response_id)).status == "in_progress":
        assert time.monotonic() < deadline, "the other gateway does not hear of it"
    assert cancelled.status == "cancelled"
    check_response_object(cancelled.to_dict())
    wait_until_at_rest(gateway)
    for one in (client, elsewhere):
        assert one.responses.retrieve(response_id).status == "cancelled"
        assert one.responses.cancel(response_id).status == "cancelled", "as often as you like"


def test_its_input_is_listed_while_it_runs(client: OpenAI, elsewhere: OpenAI) -> None:
    first = client.responses.create(model="lanewise-fast", input="Hi.", max_output_tokens=20)
    response_id = begin(client, previous_response_id=first.id)
    items = list(elsewhere.responses.input_items.list(response_id, order="asc"))
    assert [getattr(item, "role", None) for item in items] == ["user", "assistant", "user"]
    assert BOOK in str(items[-1])
    assert elsewhere.responses.retrieve(response_id).status in ("queued", "in_progress")
    client.responses.delete(response_id)


def test_one_that_ended_is_left_as_it_is(client: OpenAI, elsewhere: OpenAI) -> None:
    response_id = begin(client, model="lanewise-fast", max_output_tokens=20)
    while client.responses.retrieve(response_id).status == "in_progress":
        pass
    assert elsewhere.responses.cancel(response_id).status == "incomplete"
    foreground = client.responses.create(model="lanewise-fast", input="Hi.", max_output_tokens=20)
    with pytest.raises(BadRequestError):
        elsewhere.responses.cancel(foreground.id)


def test_a_sub_task_of_one_is_cancelled_alone(client: OpenAI) -> None:
    ask = "What is a mutex? Then prove in 3,000 words that our lock manager is fair."
    delegating = {"metadata": {"strategy": "delegate"}}
    response_id = begin(client, model="auto", input=ask, **delegating)
    subtasks: list[dict[str, str]] = []
    while not subtasks:
        response = client.responses.retrieve(response_id)
        assert response.model_extra is not None
        subtasks = response.model_extra["routing"].get("delegations", [])
    client.responses.cancel(subtasks[0]["id"])
    while (response := client.responses.retrieve(response_id)).status == "in_progress":
        pass
    assert response.status == "completed"
    assert response.model_extra is not None
    assert response.model_extra["routing"]["delegations"][0]["state"] == "cancelled"


def test_its_events_are_read_again_after_any_number(client: OpenAI) -> None:
    asked = {"model": "lanewise-fast", "input": "Hi.", "max_output_tokens": 20}
    events = list(client.responses.create(background=True, stream=True, **asked))  # type: ignore[call-overload]
    response_id = events[0].response.id
    for after, first in ((-5, 0), (-1, 0), (2, 3), (events[-1].sequence_number, len(events))):
        again = client.responses.retrieve(response_id, stream=True, starting_after=after)
        numbers = [event.sequence_number for event in again]
        assert numbers == [event.sequence_number for event in events[first:]], after


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_the_answer_to_the_request_itself(tmp_path: Path, stream: bool) -> None:
    config = tmp_path / "lanewise.toml"
    limits = "{ requests_per_min = 1, tokens_per_min = 9000, max_concurrent = 1 }"
    tenant = '[[tenants]]\nid = "tiny"\ntier = "tiny"\nkeys = ["sk-tiny-key"]\n'
    config.write_text(f"[tiers.tiny]\nlimits.fast = {limits}\n{tenant}")
    with (
        served(tmp_path, "--config", str(config)) as gateway,
        OpenAI(base_url=gateway.base_url, api_key="sk-tiny-key", max_retries=0) as client,
    ):
        asked = {"model": "lanewise-fast", "background": True, "stream": stream}
        with pytest.raises(APIStatusError) as large:
            client.responses.create(**asked, input="x" * (17 << 20))  # type: ignore[call-overload]
        assert (large.value.status_code, large.value.code) == (413, "message_too_large")
        client.responses.create(model="lanewise-fast", input="Hi.", max_output_tokens=16)
        with pytest.raises(RateLimitError) as limited:
            client.responses.create(**asked, input="Hi.")  # type: ignore[call-overload]
        assert limited.value.code == "rate_limit_exceeded"
        assert int(limited.value.response.headers["retry-after"]) > 0


@pytest.mark.parametrize("deletes_elsewhere", [False, True])
@pytest.mark.parametrize("runs", [False, True])
def test_nothing_is_left_of_one_that_was_deleted(
    client: OpenAI, elsewhere: OpenAI, deletes_elsewhere: bool, runs: bool
) -> None:
    """Its events go, which stay where it ran, and so does its object."""
    length = {} if runs else {"model": "lanewise-fast", "max_output_tokens": 20}
    response_id = begin(client, **length)
    while not runs and client.responses.retrieve(response_id).status == "in_progress":
        pass
    (elsewhere if deletes_elsewhere else client).responses.delete(response_id)
    for read in (client.responses.retrieve, client.responses.cancel, client.responses.delete):
        with pytest.raises(NotFoundError):
            read(response_id)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(response_id, stream=True)


async def test_it_survives_its_client(gateway: GatewayProcess, client: OpenAI) -> None:
    """Deep work begun over HTTP is gone on with from a socket, long after its client left."""
    with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as short_lived:
        remember = "Remember: the code word is teal-7. Then write 150 words about locks."
        response_id = begin(short_lived, input=remember, max_output_tokens=300)
    while client.responses.retrieve(response_id).status == "in_progress":
        pass
    async with SocketClient.open(gateway) as connection:
        answer = await connection.turn(
            "What is the code word?", previous_response_id=response_id, model="lanewise-fast"
        )
    assert "teal-7" in str(answer["output"])


def test_one_whose_gateway_died_has_failed(
    client: OpenAI, elsewhere: OpenAI, other: GatewayProcess, redis_client: "redis.Redis[bytes]"
) -> None:
    """This test stands last, since it takes the second gateway with it."""
    response_id = begin(elsewhere)
    other.process.send_signal(signal.SIGKILL)
    other.process.wait()
    (key,) = redis_client.keys(f"*{response_id}:runs")
    assert 0 < redis_client.ttl(key) <= 10, "it runs out by itself"
    redis_client.delete(key)
    failed = client.responses.retrieve(response_id)
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.code == "server_error"
    assert BOOK in str(client.responses.input_items.list(response_id).data), "to be asked again"
    give_up_s = time.monotonic() + 20.0  # below a lease
    for key in redis_client.keys("lw1:*lease"):  # nor need its lease be waited for
        for lease in redis_client.zrange(key, 0, -1):
            redis_client.zadd(key, {lease: 1}, xx=True)
    client.responses.create(model="lanewise-fast", input="Hi.", max_output_tokens=20)
    while leases(redis_client):
        assert time.monotonic() < give_up_s


def test_a_tenant_has_its_share_of_the_places(tmp_path: Path) -> None:
    config = tmp_path / "lanewise.toml"
    config.write_text(f"[server]\nmax_background_per_tenant = 2\n{CONFIG}")
    with (
        served(tmp_path, "--config", str(config)) as gateway,
        OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as one,
        OpenAI(base_url=gateway.base_url, api_key=NARROW_KEY, max_retries=0) as next_one,
    ):
        first, _ = begin(one), begin(one)
        with pytest.raises(RateLimitError) as caught:
            begin(one)
        assert "2 background responses of this tenant" in caught.value.message
        assert begin(next_one), "its places are its own"
        one.responses.cancel(first)
        assert begin(one), "one that ended gives its place away"
    assert "Traceback" not in gateway.log, gateway.log
