"""Lets the fast engine hand the hard part to the deep one, and cuts that part short."""

import os
import sys

try:
    import websockets  # noqa: F401 (the SDK's socket needs it)
    from openai import VERSION, OpenAI
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: `make example NAME=subtask` brings it.")
if [*map(int, VERSION.split(".")[:2])] < [3, 52]:
    sys.exit(
        f"openai {VERSION} is older than 3.52: `make example NAME=subtask` brings a newer one."
    )

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "sk-lanewise-dev"),
)
ASK = "What is a mutex? Then prove, in 2,000 words, that our lock manager cannot deadlock."
steered = False
with client.responses.connect() as connection:
    connection.response.create(model="auto", input=ASK, metadata={"strategy": "delegate"})
    for event in connection:
        if event.type == "response.in_progress":
            subtasks = event.response.model_extra["routing"].get("delegations", [])
            for subtask in subtasks:
                print(f"\n[{subtask['state']}: {subtask['task']}]")
            if subtasks and not steered:  # its id stands for it: steer or cancel it alone
                steered = True
                connection.response.steer(
                    previous_response_id=subtasks[0]["id"], input="Only the idea, in 2 sentences."
                )
        elif event.type == "response.output_item.added":
            print(f"\n({getattr(event.item, 'phase', None) or 'answer'}) ", end="")
        elif event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
        elif event.type in ("error", "response.failed"):
            error = event.error if event.type == "error" else event.response.error
            sys.exit(f"\n{error.message}")
        elif event.type in ("response.completed", "response.incomplete"):
            break
print()
