"""Makes requests that no honest client sends: each JSON text is a kind of hostile body.

`BODIES` are bodies of `POST /v1/responses`, which as `response.create` are frames, too;
`FRAMES` are frames alone; `CHATS` are bodies of `POST /v1/chat/completions`.
"""

import json
from typing import Any

CREATE: dict[str, Any] = {"model": "lanewise-fast", "input": "x", "max_output_tokens": 16}
_TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


def body(**fields: Any) -> str:
    """Returns a create with these fields."""
    return json.dumps({**CREATE, **fields})


def _raw(template: str, value: str) -> str:
    """Returns a create with one more member, which may be no JSON."""
    head = json.dumps({k: v for k, v in CREATE.items() if f'"{k}":' not in template[:40]})
    return f"{head[:-1]}, {template.replace('?', value)}}}"


# Values that are wrong for most fields, as text.
ODD_VALUES = {
    "not a number": "NaN",
    "infinity": "-Infinity",
    "1e400": "1e400",
    "a 400-digit integer": "1" + "0" * 400,
    "beyond 64 bits": "-18446744073709551617",
    "a fraction": "0.1",
    "true": "true",
    "an empty string": '""',
    "a NUL": '"\\u0000"',
    "a lone surrogate": '"\\udfff"',
    "a line break": '"a\\r\\nb: c"',
    "letters beyond ASCII": '"✓\u202e𝕏"',
    "an empty array": "[]",
    "an array of null": "[null]",
    "an empty object": "{}",
    "500 deep": "[" * 500 + "]" * 500,
    "3,000 deep": '{"a":' * 3_000 + "1" + "}" * 3_000,
    "100 kB": '"' + "x" * 100_000 + '"',
}

# Where they are put.
FIELDS = {
    name: f'"{name}":?'
    for name in (
        *("model", "input", "instructions", "previous_response_id", "conversation", "store"),
        *("stream", "background", "tools", "tool_choice", "max_output_tokens", "max_tool_calls"),
        *("temperature", "top_p", "top_logprobs", "truncation", "metadata", "reasoning", "text"),
        *("service_tier", "prompt_cache_key", "parallel_tool_calls", "safety_identifier", "user"),
        *("context_management", "prompt_cache_options", "include", "stream_options", "prompt"),
    )
} | {
    "reasoning.effort": '"reasoning":{"effort":?}',
    "reasoning.summary": '"reasoning":{"summary":?}',
    "text.format": '"text":{"format":?}',
    "text.verbosity": '"text":{"verbosity":?}',
    "text.format.schema": '"text":{"format":{"type":"json_schema","name":"n","schema":?}}',
    "text.format.name": '"text":{"format":{"type":"json_schema","name":?,"schema":{}}}',
    "metadata.route": '"metadata":{"route":?}',
    "metadata.strategy": '"metadata":{"strategy":?}',
    "metadata.deadline_ms": '"metadata":{"deadline_ms":?}',
    "metadata.max_wait_ms": '"metadata":{"max_wait_ms":?}',
    "input[0]": '"input":[?]',
    "input[0].type": '"input":[{"type":?}]',
    "input[0].role": '"input":[{"role":?,"content":"x"}]',
    "input[0].content": '"input":[{"role":"user","content":?}]',
    "input[0].content[0]": '"input":[{"role":"user","content":[?]}]',
    "input[0].content[0].type": '"input":[{"role":"user","content":[{"type":?,"text":"x"}]}]',
    "input[0].content[0].text": (
        '"input":[{"role":"user","content":[{"type":"input_text","text":?}]}]'
    ),
    "image_url": '"input":[{"role":"user","content":[{"type":"input_image","image_url":?}]}]',
    "file_data": '"input":[{"role":"user","content":[{"type":"input_file","file_data":?}]}]',
    "call_id": '"input":[{"type":"function_call","call_id":?,"name":"f","arguments":"{}"}]',
    "arguments": '"input":[{"type":"function_call","call_id":"c","name":"f","arguments":?}]',
    "output": '"input":[{"type":"function_call_output","call_id":"c","output":?}]',
    "encrypted_content": '"input":[{"type":"reasoning","summary":[],"encrypted_content":?}]',
    "compaction": '"input":[{"type":"compaction","encrypted_content":?}]',
    "item_reference": '"input":[{"type":"item_reference","id":?}]',
    "tools[0]": '"tools":[?]',
    "tools[0].type": '"tools":[{"type":?,"name":"f"}]',
    "tools[0].name": '"tools":[{"type":"function","name":?,"parameters":{}}]',
    "tools[0].parameters": (
        '"tool_choice":"required","tools":[{"type":"function","name":"f","parameters":?}]'
    ),
    "tools[0].format": (
        '"tool_choice":"required","tools":[{"type":"custom","name":"f","format":?}]'
    ),
    "tool_choice.name": '"tool_choice":{"type":"function","name":?}',
    "context_management[0]": '"context_management":[?]',
    "compact_threshold": '"context_management":[{"type":"compaction","compact_threshold":?}]',
}

# Schemas that ask for the impossible, the endless or the absurd.
SCHEMAS: dict[str, Any] = {
    "a reference to itself": {"$ref": "#"},
    "references in a circle": {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "$ref": "#/$defs/a",
    },
    "a reference to nothing": {"$ref": "#/$defs/none"},
    "a reference elsewhere": {"$ref": "http://169.254.169.254/latest"},
    "endless recursion": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    "an unknown type": {"type": "spaceship"},
    "types of types": {"type": [["string"]]},
    "no types": {"type": []},
    "an empty enum": {"enum": []},
    "an enum of objects": {"enum": [{"a": [1]}, None, 1e308]},
    "a const of depth": {"const": json.loads("[" * 60 + "]" * 60)},
    "a pattern that is none": {"type": "string", "pattern": "("},
    "a pattern that backtracks": {"type": "string", "pattern": "^(a+)+$b"},
    "a pattern with a back reference": {"type": "string", "pattern": r"(a)\1"},
    "a pattern with a huge count": {"type": "string", "pattern": "a{100000}"},
    "nested counts": {"type": "string", "pattern": "((a{1000}){1000}){1000}"},
    "least above most": {"type": "string", "minLength": 9, "maxLength": 1},
    "a huge string": {"type": "string", "minLength": 10**9},
    "a negative length": {"type": "string", "minLength": -1},
    "a fraction of a length": {"type": "string", "maxLength": 0.5},
    "many items": {"type": "array", "minItems": 10**9, "items": {"type": "null"}},
    "items of items": {"type": "array", "minItems": 99, "items": {"$ref": "#"}},
    "unique booleans": {
        "type": "array",
        "minItems": 3,
        "uniqueItems": True,
        "items": {"enum": [1]},
    },
    "numbers beyond bounds": {"type": "number", "minimum": 1e308, "multipleOf": 1e-308},
    "a multiple of nought": {"type": "integer", "multipleOf": 0},
    "a huge minimum": {"type": "integer", "minimum": 10**300},
    "contradictions": {"allOf": [{"type": "string"}, {"type": "integer"}]},
    "anyOf nothing": {"anyOf": []},
    "not anything": {"not": {}},
    "false": {"type": "object", "properties": {"a": False}, "required": ["a"]},
    "required that is none": {"type": "object", "required": ["a", 7, None]},
    "a property's name": {"type": "object", "properties": {"\ud800\x00": {"type": "string"}}},
    "properties as a list": {"type": "object", "properties": ["a"]},
    "a thousand properties": {
        "type": "object",
        "properties": {f"p{n}": {"type": "string", "minLength": 1000} for n in range(1000)},
        "required": [f"p{n}" for n in range(1000)],
    },
    "a format that is none": {"type": "string", "format": "\r\n"},
}

ITEMS: dict[str, Any] = {
    "an unknown type": [{"type": "mcp_approval_response", "approve": True}],
    "only an unknown type": [{"type": "nonsense"}],
    "a call without an output": [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}
    ],
    "an output without a call": [{"type": "function_call_output", "call_id": "?", "output": "x"}],
    "one call twice": [{"type": "function_call", "call_id": "c", "name": "f"}] * 2,
    "roles in a wrong order": [{"role": "assistant", "content": "x"}, {"role": "system"}],
    "no content": [{"role": "user"}],
    "10,001 items": [{"role": "user", "content": "x"}] * 10_001,
    "5,000 empty messages": [{"role": "user", "content": ""}] * 5_000,
    "an image of a local file": [
        {
            "role": "user",
            "content": [{"type": "input_image", "image_url": "file:///etc/passwd"}],
        }
    ],
    "an image that is none": [
        {
            "role": "user",
            "content": [{"type": "input_image", "image_url": "data:image/png;base64,!"}],
        }
    ],
    "an image without an address": [{"role": "user", "content": [{"type": "input_image"}]}],
    "a file": [{"role": "user", "content": [{"type": "input_file", "file_url": "http://[::"}]}],
    "audio": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}],
    "a refusal of the user": [
        {"role": "user", "content": [{"type": "refusal", "refusal": "\u0000"}]}
    ],
    "a reference": [{"type": "item_reference", "id": "../../etc/passwd"}],
    "a compaction of nobody": [{"type": "compaction", "encrypted_content": "lw1.AAAA"}],
    "a trigger alone": [{"type": "compaction_trigger"}],
    "two triggers": [{"type": "compaction_trigger"}, {"type": "compaction_trigger"}],
    "tools in tools": [{"type": "additional_tools", "tools": [_TOOL] * 200}],
    "1 MB of one letter": [{"role": "user", "content": "a" * 1_000_000}],
    "1 MB of spaces": [{"role": "user", "content": " " * 1_000_000}],
    "1 MB of letters beyond ASCII": [{"role": "user", "content": "𝕏" * 250_000}],
    "bidirectional marks": [{"role": "user", "content": "\u202e\u2066" * 1_000}],
    "joined emoji": [{"role": "user", "content": "👩\u200d" * 5_000}],
}

TOOLS: dict[str, Any] = {
    "1,025 tools": [_TOOL] * 1_025,
    "one tool twice": [_TOOL, _TOOL],
    "without a name": [{"type": "function", "name": ""}],
    "a name of 10 kB": [{"type": "function", "name": "f" * 10_000, "parameters": {}}],
    "a name with a line break": [{"type": "function", "name": "f\r\n\x00", "parameters": {}}],
    "a namespace of itself": [{"type": "namespace", "name": "n", "tools": [{"type": "namespace"}]}],
    "a hosted one": [{"type": "web_search"}, {"type": "mcp", "server_url": "http://127.0.0.1"}],
    "a grammar": [{"type": "custom", "name": "f", "format": {"type": "grammar", "syntax": "?"}}],
}

METADATA: dict[str, Any] = {
    "an unknown strategy": {"strategy": "nonsense"},
    "a strategy of another route": {"route": "fast", "strategy": "hedge"},
    "all routes": {"route": "fast,deep"},
    "letters beyond ASCII in a number": {"deadline_ms": "١٢٣"},
    "a superscript": {"max_wait_ms": "²"},
    "a huge number": {"deadline_ms": "9" * 512},
    "a negative number": {"max_wait_ms": "-1"},
    "a breadth of many": {"strategy": "breadth", "variations": "999999999"},
    "a breadth of none": {"strategy": "breadth", "variations": "0"},
    "a breadth of letters": {"strategy": "breadth", "variations": "²"},
    "context events as a word": {"context_events": "yes"},
    "17 entries": {str(n): "x" for n in range(17)},
    "a long key": {"k" * 65: "x"},
    "a long value": {"k": "v" * 513},
    "an empty key": {"": ""},
    "control characters": {"\x00\r\n": "\x1b[2J"},
}

BODIES: dict[str, str] = {
    **{
        f"{where}: {odd}": _raw(template, value)
        for where, template in FIELDS.items()
        for odd, value in ODD_VALUES.items()
    },
    **{
        f"a schema: {name}": body(
            text={"format": {"type": "json_schema", "name": "n", "schema": schema}}
        )
        for name, schema in SCHEMAS.items()
    },
    **{
        f"parameters: {name}": body(
            tools=[{"type": "function", "name": "f", "parameters": schema, "strict": True}],
            tool_choice="required",
        )
        for name, schema in SCHEMAS.items()
    },
    **{f"items: {name}": body(input=items) for name, items in ITEMS.items()},
    **{f"tools: {name}": body(tools=tools) for name, tools in TOOLS.items()},
    **{f"metadata: {name}": body(metadata=given) for name, given in METADATA.items()},
    **{
        f"include: {name}": body(include=[name])
        for name in ("reasoning.encrypted_content", "message.output_text.logprobs", "nonsense")
    },
    "nothing": "",
    "a space": " ",
    "a byte order mark": "\ufeff" + body(),
    "prose": "hello",
    "HTML": "<html>",
    "cut off": body()[:-5],
    "two of it": body() * 2,
    "a comment": body() + "// x",
    "a trailing comma": body()[:-1] + ",}",
    "single quotes": body().replace('"', "'"),
    "an array": "[]",
    "null": "null",
    "a number": "-0",
    "100,000 brackets": "[" * 100_000,
    "100,000 braces": '{"a":' * 100_000,
    "each key twice": body()[:-1] + "," + body(model="lanewise-deep")[1:],
    "10,000 keys": json.dumps({**CREATE, **{f"k{n}": n for n in range(10_000)}}),
    "a key of 1 MB": json.dumps({**CREATE, "k" * 1_000_000: 1}),
    "escapes": '{"\\u006dodel":"lanewise-fast","input":"\\ud83d","max_output_tokens":16}',
    "a broken escape": '{"model":"\\x41"}',
    "half a pair in a key": '{"\\ud800":1}',
    "somebody's response": body(previous_response_id="resp_" + "0" * 32),
    "a key of the store": body(previous_response_id="resp_1:feedback"),
    "a path": body(previous_response_id="../../../etc/passwd"),
    "a hash tag": body(previous_response_id="{dev}:r:x"),
    "a sealed context": body(prompt_cache_key="{a}\r\n*"),
}

_STEER = {"type": "response.steer", "previous_response_id": "resp_x", "input": "x"}


def _frame(**fields: Any) -> str:
    return json.dumps(fields)


FRAMES: dict[str, str] = {
    "an unknown type": _frame(type="session.update"),
    "a server's type": _frame(type="response.completed"),
    "a type in capitals": _frame(type="RESPONSE.CREATE"),
    "a type with a NUL": _frame(type="response.create\x00"),
    "no type": _frame(model="auto"),
    "two types": '{"type":"response.cancel","type":"response.create"}',
    "an array as type": _frame(type=["response.create"]),
    "a cancel of nothing": _frame(type="response.cancel"),
    "a cancel of an unknown one": _frame(type="response.cancel", response_id="resp_x"),
    "a cancel of a number": _frame(type="response.cancel", response_id=7),
    "a cancel of 100 kB": _frame(type="response.cancel", response_id="x" * 100_000),
    "a cancel of a sub-task": _frame(type="response.cancel", response_id="resp_x-d0001"),
    "a cancel of letters": _frame(type="response.cancel", response_id="resp_x-d²"),
    "a steer of an unknown one": json.dumps(_STEER),
    "a steer of nothing": _frame(type="response.steer"),
    "a steer of null": json.dumps({**_STEER, "previous_response_id": None}),
    "a steer of a list": json.dumps({**_STEER, "previous_response_id": ["resp_x"]}),
    "a steer with nothing": json.dumps({**_STEER, "input": ""}),
    "a steer with an assistant": json.dumps({**_STEER, "input": [{"role": "assistant"}]}),
    "a steer with a call": json.dumps({**_STEER, "input": [{"type": "function_call"}]}),
    "a steer with content of numbers": json.dumps(
        {**_STEER, "input": [{"role": "user", "content": [1, 2]}]}
    ),
    "a steer with content that is an object": json.dumps(
        {**_STEER, "input": [{"role": "user", "content": {"a": 1}}]}
    ),
    "a steer with a field too many": json.dumps({**_STEER, "model": "auto"}),
    "a steer with a surrogate": json.dumps({**_STEER, "input": "\ud800"}),
    "a steer of 1 MB": json.dumps({**_STEER, "input": "x" * 1_000_000}),
    "a steer of a sub-task": json.dumps({**_STEER, "previous_response_id": "resp_x-d٣"}),
    "an inject": _frame(type="response.inject", response_id="resp_x", input=[1]),
    "an inject of nothing": _frame(type="response.inject"),
    "an inject of numbers": _frame(type="response.inject", response_id=7, input={}),
    "an inject with a surrogate": _frame(
        type="response.inject", response_id="\udfff", input=["\ud800"]
    ),
    **{
        f"a stream id: {name}": json.dumps(
            {"type": "response.create", **CREATE, "stream_id": value}
        )
        for name, value in {
            "empty": "",
            "null": None,
            "a number": 7,
            "a list": ["a"],
            "spaces": "a b",
            "257 letters": "a" * 257,
            "letters beyond ASCII": "é",
            "a surrogate": "\ud800",
        }.items()
    },
    **{
        f"generate: {value!r}": json.dumps({"type": "response.create", **CREATE, "generate": value})
        for value in (0, "false", [], {})
    },
}

_CHAT: dict[str, Any] = {
    "model": "lanewise-fast",
    "messages": [{"role": "user", "content": "x"}],
    "max_tokens": 16,
}


def _chat(**fields: Any) -> str:
    return json.dumps({**_CHAT, **fields})


CHATS: dict[str, str] = {
    **{
        f"{field}: {odd}": f'{json.dumps(_CHAT)[:-1]},"{field}":{value}}}'
        for field in (
            *("messages", "tools", "tool_choice", "response_format", "stop", "n", "stream"),
            *("stream_options", "max_tokens", "max_completion_tokens", "seed", "logprobs"),
            *("frequency_penalty", "presence_penalty", "logit_bias", "functions", "modalities"),
            *("prediction", "reasoning_effort", "verbosity", "temperature", "user", "metadata"),
        )
        for odd, value in ODD_VALUES.items()
    },
    "a tool's answer to nobody": _chat(messages=[{"role": "tool", "content": "x"}]),
    "a message of null": _chat(messages=[None]),
    "a role that is none": _chat(messages=[{"role": "\x00", "content": "x"}]),
    "content of numbers": _chat(messages=[{"role": "user", "content": [1]}]),
    "calls of null": _chat(messages=[{"role": "assistant", "tool_calls": [None]}]),
    "calls without a function": _chat(messages=[{"role": "assistant", "tool_calls": [{"id": 1}]}]),
    "stop words without end": _chat(stop=["x"] * 1_000),
    "an empty stop word": _chat(stop=""),
    "128 answers": _chat(n=128),
}
