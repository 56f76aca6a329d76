"""Redirects an answer while it streams: what was said stays, and the answer goes on from there."""

import os
import sys

try:
    import websockets  # noqa: F401 (the SDK's socket needs it)
    from openai import VERSION, OpenAI
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: `make example NAME=steer` brings it.")
if [*map(int, VERSION.split(".")[:2])] < [3, 52]:
    sys.exit(f"openai {VERSION} is older than 3.52: `make example NAME=steer` brings a newer one.")

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "sk-lanewise-dev"),
)
with client.responses.connect() as connection:
    connection.response.create(model="lanewise-deep", input="Write a long book about caches.")
    target = None
    for event in connection:
        if event.type == "response.created":
            print(f"[{event.response.id}]")
            if target is None:
                target = event.response.id
                connection.response.steer(
                    previous_response_id=target, input="Only a haiku, please."
                )
        elif event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
        elif event.type in ("error", "response.failed", "response.steer.failed"):
            error = event.response.error if event.type == "response.failed" else event.error
            sys.exit(f"\n{error.message}")
        elif event.type in ("response.completed", "response.incomplete"):
            if event.response.id == target:
                continue  # the answer that was redirected
            break
print()
