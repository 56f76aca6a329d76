"""Runs a batch on one WebSocket: independent tasks side by side, each with a clean context."""

import os
import sys

try:
    import websockets  # noqa: F401 (the SDK's socket needs it)
    from openai import VERSION, OpenAI
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: `make example NAME=batch` brings it.")
if [*map(int, VERSION.split(".")[:2])] < [3, 52]:
    sys.exit(f"openai {VERSION} is older than 3.52: `make example NAME=batch` brings a newer one.")

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "sk-lanewise-dev"),
)
TASKS = [f"Name a use of the number {number}, in one sentence." for number in range(24)]
ENDS = ("response.completed", "response.incomplete", "response.failed")
answers: dict[str, str] = {}
with client.responses.connect() as connection:
    # At most 16 run at once and the others wait for their turn; a name per task keeps them apart.
    for number, task in enumerate(TASKS):
        connection.response.create(
            model="auto", input=task, stream_id=f"task-{number}", store=False, max_output_tokens=64
        )
    for event in connection:
        if event.type == "error":
            answers[event.stream_id] = f"{'refused':9} {event.error.message}"
        elif event.type in ENDS:
            route = event.response.model_extra["routing"]["route"]
            said = event.response.error or event.response.output_text
            answers[event.stream_id] = f"{route:9} {said}"
        if len(answers) == len(TASKS):
            break
for number, task in enumerate(TASKS):
    print(f"{task}  {answers[f'task-{number}']}")
