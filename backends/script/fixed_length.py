"""Lengthens an answer to what its request fixes: `min_tokens` and `ignore_eos`, vLLM's names.

Load generators ask so for outputs of one length, whatever they say. The message at the answer's end
grows; calls and JSON, which would become invalid, stay as they are.
"""

import msgspec

from backends.contract import DeltaKind, GenerateRequest
from backends.script.chance import Chance
from backends.script.prose import Prose
from backends.script.scripted_answer import ScriptedAnswer
from backends.script.topic import read_topic
from backends.tokenizer import count, token_ends


def lengthened(answer: ScriptedAnswer, request: GenerateRequest) -> ScriptedAnswer:
    """Returns the answer with at least the tokens that the request fixes.

    Where the end is to be ignored it has one more than the limit, which then cuts it.
    """
    extras, last = request.extras, answer.items[-1]
    if last.kind is not DeltaKind.TEXT or request.text_format.type != "text":
        return answer
    most = request.max_output_tokens + 1
    least = most if extras.ignore_eos else min(extras.min_tokens, most)
    least -= sum(item.num_silent_tokens + count(item.text) for item in answer.items[:-1])
    text = filled(last.text, least, Prose(read_topic(""), Chance(0, least)))
    return ScriptedAnswer((*answer.items[:-1], msgspec.structs.replace(last, text=text)))


def filled(text: str, num_tokens: int, prose: Prose) -> str:
    """Lengthens a text to exactly so many tokens; a longer one stays."""
    missing = num_tokens - count(text)
    if missing <= 0:
        return text
    pieces = [text]
    while missing > 0:
        pieces.append(prose.sentence())
        missing -= count(pieces[-1])
    whole = " ".join(pieces)
    return whole[: token_ends(whole)[num_tokens - 1]]
