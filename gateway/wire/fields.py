"""Says what becomes of each field of a Responses or a chat request.

Nothing is taken and silently not done. `sdk/generate.py` writes the table into docs/protocol.md,
and a test holds it to the official SDK's own types: a release that adds a field fails it.
"""

from typing import Literal, NamedTuple

import msgspec

from gateway.wire.errors import ProtocolError

# passed on: an upstream gets it, and does it if it can; a simulated engine has no use for it.
# ignored: an answer is as good without it.
Fate = Literal["done", "passed on", "refused", "ignored"]


class Field(NamedTuple):
    """Says what becomes of one field of a request."""

    name: str
    fate: Fate
    says: str  # of what is refused: what to do instead
    is_ours: bool = False  # not in the SDK's types: ours, other servers', or newer


_MODERATION = Field("moderation", "refused", "answers are not moderated here")
_SHARED = (
    Field("metadata", "done", "stored with the response; hints for the router are among it"),
    Field("model", "done", "`auto`, an alias of the policy, or an engine's"),
    Field("parallel_tool_calls", "done", "whether one answer may call several tools"),
    Field("prompt_cache_key", "done", "names the conversation; an upstream gets it, hashed"),
    Field("prompt_cache_retention", "ignored", "engines keep KV as long as they have room"),
    Field("safety_identifier", "ignored", "echoed; no upstream gets it"),
    Field(
        "service_tier", "done", "a hint for the router; an upstream that sells it is asked for it"
    ),
    Field("stream", "done", "over HTTP; a socket always streams"),
    Field("temperature", "passed on", ""),
    Field("tools", "done", "functions and custom tools; hosted ones alone are refused"),
    Field("tool_choice", "done", "all forms; a hosted tool is refused"),
    Field("top_logprobs", "refused", "there are no log probabilities; 0 is taken"),
    Field("top_p", "passed on", ""),
    Field("user", "ignored", "echoed; no upstream gets it"),
    Field("min_tokens", "done", "the least output, as vLLM; bounded by the limit", True),
    Field("ignore_eos", "done", "the output goes on to its limit, as vLLM", True),
    _MODERATION,
)

RESPONSE_FIELDS = (
    *_SHARED,
    Field("access_programs", "ignored", "no engine here has any"),
    Field("background", "done", "over HTTP; refused on a socket"),
    Field("background_options", "done", "the completion window names the price only", True),  # new
    Field("context_management", "done", "compacts a long context"),
    Field("conversation", "refused", "chain by 'previous_response_id'"),
    Field("image", "ignored", "no image is compressed"),
    Field("include", "done", "`reasoning.encrypted_content`; of other kinds there is nothing more"),
    Field("input", "done", "text, or items; items of kinds that are not known are passed over"),
    Field("instructions", "done", "the prompt begins with them"),
    Field("max_output_tokens", "done", "bounds the output, reasoning included"),
    Field("max_tool_calls", "ignored", "it counts hosted tools' calls, and there are none"),
    Field("previous_response_id", "done", "continues a response"),
    Field("prompt", "refused", "no prompts are stored here: send 'instructions' and 'input'"),
    Field("prompt_cache_options", "done", "`prewarm`; breakpoints and lifetimes change nothing"),
    Field("reasoning", "done", "`effort` and `summary`"),
    Field("store", "done", "whether the response is kept; a tenant may forbid it"),
    Field("stream_options", "ignored", "events are never obfuscated"),
    Field("text", "done", "`format`, and `verbosity`"),
    Field("truncation", "done", "`auto` drops the oldest items until the rest fits"),
    Field("generate", "done", "on a socket: false warms up a context", True),
    Field("stream_id", "done", "on a socket: keeps conversations apart", True),
    Field("client_metadata", "done", "what Codex says of itself: hints for the router", True),
)

CHAT_FIELDS = (
    *_SHARED,
    Field("audio", "refused", "answers are text alone"),
    Field("frequency_penalty", "passed on", ""),
    Field("function_call", "refused", "send 'tool_choice'"),
    Field("functions", "refused", "send 'tools'"),
    Field("logit_bias", "passed on", "tokens are the upstream's own"),
    Field("logprobs", "refused", "there are no log probabilities; false is taken"),
    Field("max_completion_tokens", "done", "bounds the output, reasoning included"),
    Field("max_tokens", "done", "the same, by its older name"),
    Field("messages", "done", "text, images, files, names; audio and `function_call` are refused"),
    Field("modalities", "refused", 'answers are text alone; ["text"] is taken'),
    Field("n", "refused", "send one request for each choice; 1 is taken"),
    Field("prediction", "done", "an engine that takes it checks it in blocks, and is sooner done"),
    Field("presence_penalty", "passed on", ""),
    Field("prompt_cache_options", "ignored", "to warm up a context, use Responses"),
    Field("reasoning_effort", "done", "how much a deep engine reasons"),
    Field("response_format", "done", "JSON, or a JSON schema that the answer follows"),
    Field("seed", "done", "the same request gets the same answer on a simulated engine"),
    Field("stop", "done", "up to four texts that end the answer"),
    Field("store", "refused", "chat completions are not kept; false is taken"),
    Field("stream_options", "done", "`include_usage`; chunks are never obfuscated"),
    Field("verbosity", "passed on", "a simulated engine halves or doubles its answer"),
    Field("web_search_options", "refused", "no tools are hosted here: offer one of your own"),
)

# `include` asks for more of what is there: of these kinds there is nothing, or always all of it.
SEALED_REASONING = "reasoning.encrypted_content"
_NOTHING_MORE = (
    *("file_search_call.results", "web_search_call.results", "web_search_call.action.sources"),
    *("message.input_image.image_url", "computer_call_output.output.image_url"),
    "code_interpreter_call.outputs",
)
LOGPROBS = "message.output_text.logprobs"

_WHY_REFUSED = {
    field.name: field.says for field in (*RESPONSE_FIELDS, *CHAT_FIELDS) if field.fate == "refused"
}


def unserved(name: str) -> ProtocolError:
    """Makes the error for a field that the table refuses."""
    message = f"'{name}' is not supported here: {_WHY_REFUSED[name]}."
    return ProtocolError("unsupported_parameter", message, param=name)


def refusal_of(error: msgspec.ValidationError) -> ProtocolError | None:
    """Makes the error for a refused field, which the Structs type as null; None for any other."""
    text, _, path = str(error).partition(" - at `$.")
    name = path.removesuffix("`")
    return unserved(name) if text.startswith("Expected `null`,") and name in _WHY_REFUSED else None


def includes_sealed_reasoning(include: list[str]) -> bool:
    """Reads `include`; raises `ProtocolError` for what is unknown or cannot be had."""
    for index, name in enumerate(include):
        if name == LOGPROBS:
            message = f"'include[{index}]': there are no log probabilities here. Leave it out."
            raise ProtocolError("unsupported_parameter", message, param=f"include[{index}]")
        if name != SEALED_REASONING and name not in _NOTHING_MORE:
            known = ", ".join(f"'{each}'" for each in (SEALED_REASONING, *_NOTHING_MORE))
            message = f"Invalid 'include[{index}]': expected {known}, got '{name[:64]}'."
            raise ProtocolError("invalid_value", message, param=f"include[{index}]")
    return SEALED_REASONING in include
