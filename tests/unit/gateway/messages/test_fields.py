"""Tests the table of fields against Anthropic's SDK, and against what decodes requests."""

from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta

from gateway.messages.fields import MESSAGE_FIELDS
from gateway.messages.request import MessagesBody

OFFICIAL = (
    message_create_params.MessageCreateParamsNonStreaming,
    message_create_params.MessageCreateParamsStreaming,
    message_count_tokens_params.MessageCountTokensParams,
    beta.MessageCreateParamsNonStreaming,
    beta.MessageCreateParamsStreaming,
)
HEADERS = {"betas"}  # fields of the SDK that it sends as headers


def test_the_table_has_every_field_of_the_official_types() -> None:
    """A field that a new release of the SDK adds is missing here until its fate is decided."""
    official = {
        name for kind in OFFICIAL for name in (kind.__required_keys__ | kind.__optional_keys__)
    }
    names = [field.name for field in MESSAGE_FIELDS]
    assert len(names) == len(set(names))
    others = {field.name for field in MESSAGE_FIELDS if field.is_ours}
    assert official - HEADERS - others == set(names) - others


def test_what_is_taken_is_decoded() -> None:
    fates = {field.name: field.fate for field in MESSAGE_FIELDS}
    decoded = set(MessagesBody.__struct_fields__)
    assert decoded == {name for name, fate in fates.items() if fate != "ignored"}
