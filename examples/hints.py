"""Says what you know about a task, by standard fields, and leaves the rest to the router."""

import os
import sys

try:
    from openai import OpenAI
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: `make example NAME=hints` brings it.")

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "sk-lanewise-dev"),
)
HINTS = {
    "nothing": {},
    "a route": {"metadata": {"route": "deep"}},
    "both engines": {"metadata": {"route": "parallel", "strategy": "hedge"}},
    "an effort": {"reasoning": {"effort": "high"}},
    "a tier": {"service_tier": "priority"},
    "an engine's model": {"model": "lanewise-fast"},
}
for name, hint in HINTS.items():
    response = client.responses.create(
        **{"model": "auto", "input": "What does this regex match?", "max_output_tokens": 64, **hint}
    )
    routing = response.model_extra["routing"]
    print(f"{name:18} {routing['route']:9} {routing['why']}")
