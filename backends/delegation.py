"""Defines the tool by which an engine delegates a part of its work to another engine.

The gateway offers it, runs it and returns its output; clients never see its calls.
"""

from backends.contract import FunctionTool

DELEGATE_TOOL = "lanewise_delegate"
RUNNING = "running"  # the `status` of the output while the sub-task is under way

DELEGATE = FunctionTool(
    name=DELEGATE_TOOL,
    description=(
        "Hand a sub-task that needs long and careful reasoning (a proof, a design, a review, a "
        "hard bug) to a slower and stronger model. It sees this conversation. Its work is shown "
        "to the user and returned to you."
    ),
    parameters={
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "What to do, complete in itself."}
        },
        "required": ["task"],
        "additionalProperties": False,
    },
)
