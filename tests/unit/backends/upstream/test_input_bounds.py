"""Tests the most that an upstream can count for a prompt: by the bytes that it was sent."""

from backends.contract import FilePart, ImagePart, Message, TextPart
from backends.upstream.answer.reader import Bounds
from backends.upstream.answer.reported_usage import SPARE_INPUT_TOKENS, max_input_tokens
from backends.upstream.answer.responses_events import decode_event
from backends.upstream.answer.responses_reader import ResponsesReader
from backends.upstream.chain import Turn
from tests.unit.backends.upstream.upstream_requests import make_options, make_request

QUESTION = Message("user", (TextPart("Count to three."),))


def test_input_is_bounded_by_the_bytes_that_were_sent_and_a_tenth() -> None:
    request = make_request(QUESTION)
    assert max_input_tokens(request, 1_000, 50, 900) == 1_100 + SPARE_INPUT_TOKENS


def test_an_image_counts_its_own_bound_instead_of_its_bytes() -> None:
    url = "data:image/png;base64," + "A" * 10_000
    request = make_request(Message("user", (ImagePart(url), ImagePart(file_id="file-1"))))
    assert max_input_tokens(request, 200 + len(url), 50, 900) == 220 + 2 * 50 + SPARE_INPUT_TOKENS


def test_a_file_that_is_only_named_may_fill_the_window() -> None:
    parts = (FilePart(file_url="https://a.example/b.pdf"), FilePart(file_data="A" * 100))
    request = make_request(Message("user", parts))
    assert max_input_tokens(request, 300, 50, 900) == 330 + 900 + SPARE_INPUT_TOKENS


def test_a_conversation_that_goes_on_counts_what_the_server_remembers() -> None:
    options = make_options("responses", chains=True)
    first = Turn(make_request(QUESTION), options)
    first.whole()
    first.sent(1_000)
    reader = ResponsesReader("up", make_request(QUESTION), frozenset())
    events = [
        decode_event(b'{"type":"response.output_text.delta","item_id":"m","delta":"One."}'),
        decode_event(
            b'{"type":"response.completed","response":{"id":"resp_1","usage":'
            b'{"input_tokens":9,"output_tokens":70,"output_tokens_details":{"reasoning_tokens":66}}}}'
        ),
    ]
    reader.read(events, 0)
    assert reader.finish is not None
    first.finished(reader.finish, reader)
    chain = first.chain()
    assert chain is not None
    answer = Message("assistant", (TextPart("One."),))
    second = Turn(make_request(QUESTION, answer, QUESTION), options)
    second.after(chain)
    second.sent(500)
    assert second.max_input_tokens() == (1_000 + 70 + 500) * 11 // 10 + SPARE_INPUT_TOKENS
    second.whole()
    second.sent(1_200)
    assert second.max_input_tokens() == 1_320 + SPARE_INPUT_TOKENS


def test_the_bound_is_asked_only_if_the_server_counts_more_than_we_do() -> None:
    request = make_request(QUESTION)

    def asked() -> int:
        calls.append(1)
        return 40

    for num_input, num_calls, charged in ((request.num_prompt_tokens, 0, None), (10**9, 1, 40)):
        calls: list[int] = []
        reader = ResponsesReader("up", request, frozenset(), None, Bounds(None, asked))
        usage = b'{"input_tokens":%d,"output_tokens":1}' % num_input
        event = b'{"type":"response.completed","response":{"usage":%b}}' % usage
        reader.read([decode_event(event)], 0)
        assert reader.finish is not None
        assert len(calls) == num_calls
        assert reader.finish.usage.num_input_tokens == (charged or num_input)
        assert reader.finish.usage.bounded is (charged is not None)
