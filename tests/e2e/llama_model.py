"""Makes a tiny model for llama.cpp: what it says next depends on the last token alone.

One block whose weights are zero leaves each token's one-hot embedding as it is; the output matrix
then is a table from a token to the next. The chat template ends every prompt with the last
message, so its last character chooses: "." the sentence, "?" the call, "!" a loop without end.
"""

from pathlib import Path

import gguf
import numpy as np

SENTENCE = ("Sorted", " lists", " merge", " in", " linear", " time", " flat")
CALL_ARGUMENTS = {"city": "Paris"}
CALL = (
    '<tool_call>\n{"name": "get_weather"',
    ', "arguments": {"city": ',
    '"Paris"',
    "}}\n</tool_call>",
)
LOOP = (" round", " and")
CONTEXT_TOKENS = 262_144
HEAD_WIDTH = 32  # of the one head: attention costs nothing, also over a coding agent's prompt

# Frequent pieces of English and of JSON: an agent's prompt has half as many tokens with them.
_FREQUENT = """
description additionalProperties properties parameters instructions explicitly required function
commands formatting message string object status output should before files agent tests tasks model
user when your type that with this only work code the and for you not are ing ion ent tion able er
re on an in es st en at or te se ed th al ti le ar ve me to it is ne as ro de ma co ou ri io nd ha
hi ng om ur ec us ge tr ch pe si ce
"""
ENGLISH = (*_FREQUENT.split(), *(f" {letter}" for letter in "abcdefghilmnoprstuw"))

_SPECIAL = (b"<unk>", b"<s>", b"</s>")
_END = 2  # of a sequence: </s>

# Hermes' form of tool calls, which llama.cpp recognises by the template.
_TEMPLATE = """
{%- if tools %}<|im_start|>system
# Tools
You may call one or more functions to assist with the user query.
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
For each function call, return a json object within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == "assistant" and message.tool_calls %}<|im_start|>assistant
{%- if message.content %}
{{ message.content }}
{%- endif %}
{%- for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% elif message.role == "tool" %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{{ messages[-1].content }}{% endif %}
"""


def write_model(path: Path, more: tuple[str, ...] = ()) -> None:
    """Write it as a GGUF file of some megabytes, with further pieces in its vocabulary."""
    pieces = [*SENTENCE, *CALL, *LOOP, *more]
    tokens = [*_SPECIAL, *(f"<0x{byte:02X}>".encode() for byte in range(256))]
    ids = {piece: len(tokens) + place for place, piece in enumerate(pieces)}
    tokens += [piece.encode() for piece in pieces]
    kind = gguf.TokenType
    kinds = [kind.UNKNOWN, kind.CONTROL, kind.CONTROL]
    kinds += [kind.BYTE] * 256 + [kind.USER_DEFINED] * len(pieces)
    following = dict.fromkeys(range(len(tokens)), _END)
    for start, chain in ((".", SENTENCE), ("?", CALL), ("!", (*LOOP, LOOP[0]))):
        current = len(_SPECIAL) + ord(start)
        for piece in chain:
            following[current] = current = ids[piece]
    width = -(-len(tokens) // 64) * 64
    writer = gguf.GGUFWriter(str(path), "llama")
    _write_shape(writer, width, len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(_END)
    writer.add_unk_token_id(0)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(_TEMPLATE)
    _write_weights(writer, width, following)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_shape(writer: gguf.GGUFWriter, width: int, num_tokens: int) -> None:
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD_WIDTH)
    writer.add_value_length(HEAD_WIDTH)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD_WIDTH)
    writer.add_vocab_size(num_tokens)


def _write_weights(writer: gguf.GGUFWriter, width: int, following: dict[int, int]) -> None:
    num_tokens = len(following)
    output = np.zeros((num_tokens, width), np.float32)
    for token, then in following.items():
        output[then, token] += 4.0  # far above all others, at any temperature in use
    ones = np.ones(width, np.float32)
    writer.add_tensor("token_embd.weight", np.eye(num_tokens, width, dtype=np.float32))
    writer.add_tensor("output_norm.weight", ones)
    writer.add_tensor("output.weight", output)
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", ones)
    shapes = {f"attn_{part}": (HEAD_WIDTH, width) for part in ("q", "k", "v")}
    shapes |= {"attn_output": (width, HEAD_WIDTH)}
    shapes |= {"ffn_gate": (32, width), "ffn_up": (32, width), "ffn_down": (width, 32)}
    for name, shape in shapes.items():
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros(shape, np.float32))
