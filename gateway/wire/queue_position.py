"""Writes the event that says where a task stands that waits for a pool."""

import msgspec

from backends.contract import BackendGroup
from router.waiting.fair_queue import QueuePosition

QUEUE_POSITION_EVENT = "response.waiting"  # ours; sent only where the client asked for it


def queue_position_fields(response_id: str, group: BackendGroup, position: QueuePosition) -> bytes:
    """Write the event's fields as JSON, without the braces around them."""
    fields = {
        "response_id": response_id,
        "group": group,
        "place": position.position,
        "expected_wait_ms": -(-position.expected_us // 1_000),
    }
    return msgspec.json.encode(fields)[1:-1]
