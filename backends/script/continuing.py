"""Cuts an answer to what follows the words that another engine has said of it."""

import msgspec

from backends.contract import DeltaKind, GenerateRequest
from backends.script.scripted_answer import AnswerItem, ScriptedAnswer
from backends.tokenizer import count


def whole_request(request: GenerateRequest, max_output_tokens: int) -> GenerateRequest:
    """Returns the request of the whole answer, of which `max_output_tokens` are still to come."""
    num_said = count(request.prefill)
    extras = request.extras
    if extras.min_tokens:
        extras = msgspec.structs.replace(extras, min_tokens=extras.min_tokens + num_said)
    return msgspec.structs.replace(
        request, max_output_tokens=max_output_tokens + num_said, extras=extras
    )


def rest_of(answer: ScriptedAnswer, prefill: str) -> ScriptedAnswer:
    """Returns what is left to say behind `prefill`, without reasoning: the answer has begun.

    Where the answer does not begin with these words, which are another script's, it goes on at the
    first word behind as many characters.
    """
    items = [item for item in answer.items if item.kind is not DeltaKind.REASONING]
    if items and items[0].kind is DeltaKind.TEXT:
        items[0] = msgspec.structs.replace(items[0], text=_behind(items[0].text, prefill))
    return ScriptedAnswer(tuple(items) or (AnswerItem(DeltaKind.TEXT, ""),))


def _behind(text: str, prefill: str) -> str:
    if text.startswith(prefill):
        return text[len(prefill) :]
    space = text.find(" ", len(prefill))
    return text[space:] if space >= 0 else ""
