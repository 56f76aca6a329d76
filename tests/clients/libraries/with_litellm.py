"""Asks by LiteLLM: chat, Responses and Messages, with tools, a type, streams and its errors."""

import asyncio
import json
import os
import sys

import litellm
from pydantic import BaseModel

litellm.suppress_debug_info = True
URL, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
TO = {"model": "openai/auto", "api_base": URL, "api_key": KEY, "max_retries": 0}
CLAUDE = {"api_base": os.environ["ANTHROPIC_BASE_URL"], "api_key": KEY}
CLAUDE["model"] = "anthropic/claude-lanewise-fast"


class Report(BaseModel):
    city: str
    degrees: int


def say(text: str) -> list:
    return [{"role": "user", "content": text}]


def tool(name: str) -> dict:
    properties = {"city": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def names(answer: object) -> list:
    return [call.function.name for call in answer.choices[0].message.tool_calls]


both = say("Use get_weather and get_population for Lisbon.")
tools = [tool("get_weather"), tool("get_population")]
reported = litellm.completion(
    messages=say("It is 21 degrees in Lisbon"), response_format=Report, **TO
)
chunks = list(litellm.completion(messages=say("Why?"), stream=True, **TO))
first = litellm.responses(input="The code word is beryl.", **TO)
second = litellm.responses(input="What is it?", previous_response_id=first.id, **TO)
events = [event.type for event in litellm.responses(input="Why?", stream=True, **TO)]
messages = asyncio.run(
    litellm.anthropic_messages(messages=both, max_tokens=200, tools=[], **CLAUDE)
)
try:
    litellm.completion(messages=say("word " * 400_000), **{**TO, "model": "openai/lanewise-fast"})
    overflow = None
except litellm.ContextWindowExceededError as error:
    overflow = error.status_code
told = {
    "report": json.loads(reported.choices[0].message.content),
    "called": names(litellm.completion(messages=both, tools=tools, **TO)),
    "called_by_messages": names(litellm.completion(messages=both, tools=tools, **CLAUDE)),
    "chunks": len(chunks) > 2 and chunks[-1].choices[0].finish_reason,
    "chained": second.output[-1].content[0].text,
    "last_event": events[-1],
    "message": messages["type"],
    "overflow": overflow,
}
sys.stderr.flush()
print(json.dumps(told))
