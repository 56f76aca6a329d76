"""Compaction: a shorter context that stands for a longer one (`POST /v1/responses/compact`).

Extractive, and made without an engine: what people and instructions said stays word for word; what
the assistant and tools said is cut to its beginning.
"""

from typing import Any

from backends.contract import Compaction, Message, Usage
from backends.prompt import measure, render
from gateway.folding import fold, unfold
from gateway.items import wire_item
from gateway.objects import usage_json
from router.task import Task

MAX_KEPT_CHARS = 400  # of each item that is not kept whole


def compact(task: Task, response_id: str, created_at: int) -> dict[str, Any]:
    """The `response.compaction` object for a context."""
    kept: list[dict[str, Any]] = []
    folded: list[str] = []
    for number, entry in enumerate(task.request.items):
        item = entry.item
        if isinstance(item, Message) and item.role != "assistant":
            kept.append(wire_item(item, f"msg_{response_id.removeprefix('resp_')}{number:04x}"))
        else:
            text = render(item)
            folded.append(text if len(text) <= MAX_KEPT_CHARS else text[:MAX_KEPT_CHARS] + " ...")
    content = fold("\n".join(folded))
    item_id = f"cmp_{response_id.removeprefix('resp_')}"
    used = Usage(
        num_input_tokens=task.request.num_prompt_tokens,
        num_output_tokens=measure(unfold(Compaction(content, item_id))).num_tokens,
    )
    return {
        "id": response_id,
        "object": "response.compaction",
        "created_at": created_at,
        "output": [*kept, {"type": "compaction", "id": item_id, "encrypted_content": content}],
        "usage": usage_json(used),
    }
