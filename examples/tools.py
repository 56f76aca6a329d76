"""Answers a function call, and sends its output with the next turn."""

import json
import os
import sys

try:
    from openai import OpenAI
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: `make example NAME=tools` brings it.")

TOOL = {
    "type": "function",
    "name": "celsius",
    "description": "Temperature in a city, in degrees Celsius.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


def celsius(city: str) -> str:
    return f"It is {len(city) + 10} degrees in {city}."


client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "sk-lanewise-dev"),
)
response = client.responses.create(
    model="auto", input="How warm is Lisbon?", tools=[TOOL], tool_choice="required"
)
outputs = [
    {
        "type": "function_call_output",
        "call_id": call.call_id,
        "output": celsius(**json.loads(call.arguments)),
    }
    for call in response.output
    if call.type == "function_call"
]
answer = client.responses.create(
    model="auto", previous_response_id=response.id, input=outputs, tools=[TOOL]
)
print(answer.output_text)
