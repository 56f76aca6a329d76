"""Tests the official Python SDK, sync and async, over HTTP: unchanged but for its address."""

import copy
import itertools
import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI, Stream
from openai.types.responses import ResponseStreamEvent

from tests.e2e.events import check_event, check_response
from tests.e2e.gateway_process import SMALL_KEY, GatewayProcess

TOOL: dict[str, Any] = {
    "type": "function",
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "strict": True,
}
CHAT_TOOL: Any = {"type": "function", "function": {k: v for k, v in TOOL.items() if k != "type"}}


@pytest.mark.parametrize("model", ["auto", "lanewise-fast", "lanewise-deep"])
def test_create_retrieve_chain_delete(client: OpenAI, model: str) -> None:
    response = client.responses.create(
        model=model, input="The code word is garnet-3.", max_output_tokens=300
    )
    assert response.output_text
    assert response.usage is not None
    assert response.usage.total_tokens > 0
    assert response.model_extra is not None
    assert response.model_extra["routing"]["why"]
    again = client.responses.retrieve(response.id)
    assert again.output_text == response.output_text
    follow_up = client.responses.create(
        model=model, input="What is the code word?", previous_response_id=response.id
    )
    assert "garnet-3" in follow_up.output_text
    items = client.responses.input_items.list(follow_up.id, order="asc")
    assert "garnet-3" in items.data[0].model_dump_json()
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(response.id)


def test_what_continues_a_deleted_response_says_which_one_is_gone(client: OpenAI) -> None:
    made: list[str] = []
    for number in range(4):
        response = client.responses.create(
            model="lanewise-fast",
            input=f"Turn {number}.",
            previous_response_id=made[-1] if made else openai.omit,
            max_output_tokens=16,
        )
        made.append(response.id)
    client.responses.delete(made[1])
    listed = client.responses.input_items.list(made[3], order="asc").model_dump_json()
    assert [f"Turn {number}." in listed for number in range(4)] == [True, False, True, True]
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="auto", input="And?", previous_response_id=made[3])
    error = refused.value
    assert (error.code, error.param) == ("previous_response_not_found", "previous_response_id")
    assert f"'{made[1]}', which came before it, is not stored any more" in error.message
    assert "Send the full context as 'input'" in error.message
    follow_up = client.responses.create(model="auto", input="And?", previous_response_id=made[0])
    assert follow_up.output_text, "what came before the deleted one goes on"


def test_what_has_not_ended_is_not_said_to_be_missing(client: OpenAI) -> None:
    running = client.responses.create(
        model="lanewise-deep", input="Write 3000 words.", background=True, max_output_tokens=4000
    )
    with pytest.raises(openai.BadRequestError, match="has not ended yet") as refused:
        client.responses.create(model="auto", input="And?", previous_response_id=running.id)
    assert refused.value.code == "previous_response_not_found"
    client.responses.cancel(running.id)


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_items_that_came_twice_are_listed_once_each(client: OpenAI, order: Any) -> None:
    """Codex sends an item again, by its id, after a connection was lost."""
    said: Any = [
        {"type": "message", "role": "user", "id": "msg_same", "content": f"{number}"}
        for number in range(5)
    ]
    response = client.responses.create(model="lanewise-fast", input=said, max_output_tokens=16)
    listed = client.responses.input_items.list(response.id, order=order, limit=2)
    items: list[Any] = list(itertools.islice(listed, 9))  # it fetches the pages
    texts = [item.content[0].text for item in items]
    assert texts == sorted("01234", reverse=order == "desc")
    assert len({item.id for item in items}) == 5
    assert "msg_same" in {item.id for item in items}


def test_store_false_is_not_kept(client: OpenAI) -> None:
    response = client.responses.create(model="auto", input="Hi.", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="auto", input="And?", previous_response_id=response.id)
    assert refused.value.code == "previous_response_not_found"


@pytest.mark.parametrize("model", ["auto", "lanewise-fast", "lanewise-deep"])
def test_streaming(client: OpenAI, model: str) -> None:
    with client.responses.create(
        model=model, input="Explain recursion.", stream=True, max_output_tokens=300
    ) as stream:
        events = [event.model_dump(exclude_unset=True, mode="json") for event in stream]
    for event in events:
        assert "stream_id" not in event
        check_event(event)
    check_response(events)
    assert sum(event["type"] == "response.output_text.delta" for event in events) >= 2


def test_the_stream_helper(client: OpenAI) -> None:
    with client.responses.stream(model="lanewise-fast", input="Write a haiku.") as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_text == text
    assert final.status == "completed"


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_streaming_of_a_pretty_printed_request(client: OpenAI, line_break: str) -> None:
    """Nothing that a response repeats of its request breaks an SSE line."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    body = {
        "model": "lanewise-fast",
        "input": [{"role": "user", "content": "Say hello\nand goodbye."}],
        "instructions": "Be\nkind.\r",
        "metadata": {"a": "b\nc"},
        "tools": [TOOL],
        "tool_choice": {"type": "function", "name": "add"},
        "text": {"format": {"type": "json_schema", "name": "a", "schema": schema}},
        "stream": True,
    }
    pretty = json.dumps(body, indent=2).replace("\n", line_break)
    stream = client.post(
        "/responses",
        content=pretty,
        options={"headers": {"content-type": "application/json"}},
        cast_to=ResponseStreamEvent,
        stream=True,
        stream_cls=Stream[ResponseStreamEvent],
    )
    events = [event.model_dump(exclude_unset=True, mode="json", by_alias=True) for event in stream]
    for event in events:
        check_event(event)
    check_response(events)
    repeated = events[-1]["response"]
    assert repeated["tools"] == [TOOL]
    assert repeated["text"]["format"]["schema"] == schema
    assert repeated["metadata"] == {"a": "b\nc"}


async def test_async_create_and_stream(async_client: AsyncOpenAI) -> None:
    response = await async_client.responses.create(model="auto", input="Say hello.")
    assert response.output_text
    stream = await async_client.responses.create(model="auto", input="Say hello.", stream=True)
    kinds = [event.type async for event in stream]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    async with async_client.responses.stream(model="auto", input="Say hello.") as helped:
        assert (await helped.get_final_response()).output_text


def test_functions_round_trip(client: OpenAI) -> None:
    response = client.responses.create(
        model="lanewise-fast", input="What is 2 + 3?", tools=[TOOL], tool_choice="required"
    )
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert set(json.loads(call.arguments)) == {"a", "b"}
    answer = client.responses.create(
        model="lanewise-fast",
        previous_response_id=response.id,
        tools=[TOOL],
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "it is 5"}],
    )
    assert "it is 5" in answer.output_text


def test_a_background_response_is_polled_and_cancelled(client: OpenAI) -> None:
    response = client.responses.create(
        model="lanewise-deep", input="Write a book.", background=True, max_output_tokens=16_000
    )
    assert response.status in ("queued", "in_progress")
    assert client.responses.retrieve(response.id).status in ("queued", "in_progress")
    assert client.responses.cancel(response.id).status == "cancelled"
    foreground = client.responses.create(model="auto", input="Hi.")
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(foreground.id)


def test_counting_and_compacting(client: OpenAI) -> None:
    text = "Count these words. " * 50
    counted = client.responses.input_tokens.count(model="lanewise-fast", input=text)
    response = client.responses.create(model="lanewise-fast", input=text, max_output_tokens=16)
    assert response.usage is not None
    assert counted.input_tokens == response.usage.input_tokens
    compacted = client.responses.compact(model="auto", previous_response_id=response.id)
    assert compacted.output


def test_models(client: OpenAI) -> None:
    ids = {model.id for model in client.models.list()}
    assert {"auto", "lanewise-fast", "lanewise-deep"} <= ids
    assert client.models.retrieve("lanewise-fast").id == "lanewise-fast"
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("gpt-0")
    assert refused.value.code == "model_not_found"


MESSAGES: Any = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "The code word is topaz-8. What is the code word?"},
]


def test_chat_completions(client: OpenAI) -> None:
    completion = client.chat.completions.create(model="auto", messages=MESSAGES)
    assert completion.object == "chat.completion"
    assert completion.choices[0].finish_reason == "stop"
    assert "topaz-8" in (completion.choices[0].message.content or "")
    assert completion.usage is not None
    assert completion.usage.total_tokens > 0
    cut = client.chat.completions.create(
        model="auto",
        messages=[{"role": "user", "content": "Write a long text."}],
        max_completion_tokens=20,
    )
    assert cut.choices[0].finish_reason == "length"
    assert cut.usage is not None
    assert cut.usage.completion_tokens == 20


@pytest.mark.parametrize("with_usage", [True, False])
def test_chat_completions_streamed(client: OpenAI, with_usage: bool) -> None:
    options: Any = {"stream_options": {"include_usage": True}} if with_usage else {}
    chunks = list(
        client.chat.completions.create(model="auto", messages=MESSAGES, stream=True, **options)
    )
    assert len({chunk.id for chunk in chunks}) == 1
    first, *_ = chunks
    assert first.choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert "topaz-8" in text
    ends = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert ends[-1] == "stop"
    assert set(ends[:-1]) == {None}
    if with_usage:
        assert chunks[-1].choices == []
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens > 0
    else:
        assert all(chunk.usage is None for chunk in chunks)


def test_chat_completions_call_functions(client: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "What is 2 + 3?"}]
    completion = client.chat.completions.create(
        model="lanewise-fast", messages=messages, tools=[CHAT_TOOL], tool_choice="required"
    )
    message = completion.choices[0].message
    assert completion.choices[0].finish_reason == "tool_calls"
    assert message.tool_calls
    (call,) = message.tool_calls
    assert call.type == "function"
    assert set(json.loads(call.function.arguments)) == {"a", "b"}
    messages += [
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "it is 5"},
    ]
    answer = client.chat.completions.create(
        model="lanewise-fast", messages=messages, tools=[CHAT_TOOL]
    )
    assert "it is 5" in (answer.choices[0].message.content or "")


def test_chat_completions_stream_function_calls(client: OpenAI) -> None:
    name, arguments, call_ids = "", "", set()
    for chunk in client.chat.completions.create(
        model="lanewise-fast",
        messages=[{"role": "user", "content": "What is 2 + 3?"}],
        tools=[CHAT_TOOL],
        tool_choice={"type": "function", "function": {"name": "add"}},
        stream=True,
    ):
        for choice in chunk.choices:
            for piece in choice.delta.tool_calls or ():
                assert piece.index == 0
                assert piece.function is not None
                name += piece.function.name or ""
                arguments += piece.function.arguments or ""
                call_ids.add(piece.id)
    assert name == "add"
    assert set(json.loads(arguments)) == {"a", "b"}
    assert len(call_ids - {None}) == 1


def test_stop_sequences_stop(client: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Explain what a hash map is."}]
    whole = client.chat.completions.create(model="lanewise-fast", messages=messages, seed=7)
    text = whole.choices[0].message.content or ""
    word = text.split()[12]
    cut = client.chat.completions.create(
        model="lanewise-fast", messages=messages, seed=7, stop=[word]
    )
    assert cut.choices[0].message.content == text[: text.index(word)]
    assert cut.choices[0].finish_reason == "stop"


def test_errors_are_typed(client: OpenAI, gateway: GatewayProcess) -> None:
    stranger = client.with_options(api_key="sk-wrong")
    with pytest.raises(openai.AuthenticationError) as refused:
        stranger.responses.create(model="auto", input="Hi.")
    assert refused.value.code == "invalid_api_key"
    assert refused.value.request_id
    with pytest.raises(openai.NotFoundError) as missing:
        client.responses.create(model="gpt-0", input="Hi.")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        client.responses.create(model="auto", input=7)  # type: ignore[call-overload]
    assert bad.value.param == "input"
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_unknown")
    with pytest.raises(openai.NotFoundError):
        client.get("/no/such/path", cast_to=object)


def test_rate_limits_are_typed_and_tell_when_to_come_back(gateway: GatewayProcess) -> None:
    def ask_too_often() -> None:
        with OpenAI(base_url=gateway.base_url, api_key=SMALL_KEY, max_retries=0) as small:
            for _ in range(8):
                small.responses.create(model="auto", input="Hi.", max_output_tokens=16)

    with pytest.raises(openai.RateLimitError) as refused:
        ask_too_often()
    assert refused.value.code == "rate_limit_exceeded"
    headers = refused.value.response.headers
    assert 1 <= int(headers["retry-after"]) <= 60
    assert headers["x-ratelimit-limit-requests"] == "2"
    assert headers["x-ratelimit-remaining-requests"] == "0"


def test_answers_tell_what_is_left(client: OpenAI) -> None:
    answer = client.responses.with_raw_response.create(model="lanewise-fast", input="Hi.")
    assert answer.headers["x-request-id"]
    assert answer.headers["openai-processing-ms"]
    assert answer.headers["x-ratelimit-limit-requests"] == "6000"
    assert int(answer.headers["x-ratelimit-remaining-requests"]) < 6000
    assert int(answer.headers["x-ratelimit-remaining-tokens"]) < 20_000_000
    assert answer.headers["x-ratelimit-reset-tokens"]


CHUNK: dict[str, Any] = {"type": "string", "minLength": 20_000, "maxLength": 20_000}
HUGE: dict[str, Any] = {"type": "array", "minItems": 1_000, "items": CHUNK}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("text.format.schema", {"text": {"format": {"type": "json_schema", "name": "a"}}}),
        ("tools", {"tools": [TOOL], "tool_choice": "required"}),
    ],
)
def test_a_schema_that_asks_for_too_much_is_refused(
    client: OpenAI, param: str, fields: dict[str, Any], stream: bool
) -> None:
    fields = copy.deepcopy(fields)
    if param == "tools":
        fields["tools"][0]["parameters"]["properties"]["a"] = HUGE
    else:
        fields["text"]["format"]["schema"] = HUGE
    with pytest.raises(openai.BadRequestError, match="400000 characters") as refused:
        client.responses.create(model="lanewise-fast", input="x", stream=stream, **fields)
    assert (refused.value.param, refused.value.code) == (param, "invalid_value")


def test_a_pattern_is_never_searched_by_backtracking(client: OpenAI) -> None:
    schema = {"type": "string", "pattern": "^(a+)+$b"}
    text: Any = {"format": {"type": "json_schema", "name": "a", "schema": schema}}
    response = client.responses.create(model="lanewise-fast", input="x", text=text)
    assert isinstance(json.loads(response.output_text), str)
