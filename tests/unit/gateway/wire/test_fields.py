"""Tests the table of fields against the official SDK, and against what decodes requests."""

from typing import Any

import msgspec
import pytest
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses
from openai.types.responses.responses_client_event_param import ResponseCreate

from gateway.chat.request import ChatBody
from gateway.wire.errors import ProtocolError
from gateway.wire.events import CreateBody, decode
from gateway.wire.events import ResponseCreate as OurCreate
from gateway.wire.fields import CHAT_FIELDS, RESPONSE_FIELDS, Fate, Field

OFFICIAL: dict[str, tuple[tuple[Any, ...], tuple[Field, ...]]] = {
    "Responses": (
        (
            responses.ResponseCreateParamsNonStreaming,
            responses.ResponseCreateParamsStreaming,
            ResponseCreate,
        ),
        RESPONSE_FIELDS,
    ),
    "chat completions": (
        (chat.CompletionCreateParamsNonStreaming, chat.CompletionCreateParamsStreaming),
        CHAT_FIELDS,
    ),
}
BODIES: tuple[tuple[Any, tuple[Field, ...]], ...] = (
    (OurCreate, RESPONSE_FIELDS),
    (ChatBody, CHAT_FIELDS),
)


@pytest.mark.parametrize("api", OFFICIAL)
def test_the_table_has_every_field_of_the_official_types(api: str) -> None:
    """A field that a new release of the SDK adds is missing here until its fate is decided."""
    kinds, table = OFFICIAL[api]
    official = {
        name for kind in kinds for name in (kind.__required_keys__ | kind.__optional_keys__)
    }
    names = [field.name for field in table]
    assert len(names) == len(set(names))
    ours = {field.name for field in table if field.is_ours}
    assert official - {"type"} - ours == set(names) - ours


@pytest.mark.parametrize(("body", "table"), BODIES, ids=lambda each: getattr(each, "__name__", ""))
def test_what_is_taken_is_decoded(body: Any, table: tuple[Field, ...]) -> None:
    fates: dict[str, Fate] = {field.name: field.fate for field in table}
    decoded = set(body.__struct_fields__)
    assert decoded <= fates.keys(), "every field that is decoded has its fate in the table"
    missing = {name for name, fate in fates.items() if fate != "ignored"} - decoded
    assert missing == set(), "a field with any other fate is read by someone"


@pytest.mark.parametrize("kind", [CreateBody, ChatBody])
def test_what_is_never_taken_names_itself(kind: Any) -> None:
    never = [field for field in msgspec.structs.fields(kind) if field.type is type(None)]
    assert never
    for field in never:
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}], field.name: {"a": 1}}
        with pytest.raises(ProtocolError) as caught:
            decode(msgspec.json.encode(body), kind)
        assert (caught.value.code, caught.value.param) == ("unsupported_parameter", field.name)
        assert field.name in caught.value.message
