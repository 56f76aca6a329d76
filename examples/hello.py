"""Asks once, and shows what the router thought: the OpenAI SDK, unchanged but for its address."""

import os
import sys

try:
    from openai import OpenAI
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: `make example NAME=hello` brings it.")

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "sk-lanewise-dev"),
)
response = client.responses.create(model="auto", input="Reverse a string in Python.")
print(response.output_text)

routing = response.model_extra["routing"]  # every response tells where it went, and why
print(f"\n{routing['route']}: {routing['why']}")
