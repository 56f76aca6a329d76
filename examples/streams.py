"""Holds two conversations at once on one WebSocket: a quick answer does not wait for a slow one."""

import os
import sys

try:
    import websockets  # noqa: F401 (the SDK's socket needs it)
    from openai import VERSION, OpenAI
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: `make example NAME=streams` brings it.")
if [*map(int, VERSION.split(".")[:2])] < [3, 52]:
    sys.exit(
        f"openai {VERSION} is older than 3.52: `make example NAME=streams` brings a newer one."
    )

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "sk-lanewise-dev"),
)
with client.responses.connect() as connection:
    connection.response.create(
        model="lanewise-deep",
        input="Why do B-trees split upwards?",
        stream_id="slow",
        max_output_tokens=200,
    )
    connection.response.create(model="lanewise-fast", input="Name a B-tree.", stream_id="quick")
    open_streams = {"slow", "quick"}
    for event in connection:
        if event.type in ("response.completed", "response.incomplete"):
            print(f"{event.stream_id}: {event.response.usage.output_tokens} tokens")
        elif event.type in ("error", "response.failed"):
            error = event.error if event.type == "error" else event.response.error
            print(f"{event.stream_id}: {error.message}")
        else:
            continue
        open_streams.discard(event.stream_id)
        if not open_streams:
            break
