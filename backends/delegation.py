"""Defines the tools by which an engine delegates a part of its work, or asks for advice.

The gateway offers them, runs them and returns their output; clients never see the calls.
"""

from backends.contract import FunctionTool

DELEGATE_TOOL = "lanewise_delegate"
RUNNING = "running"  # the `status` of the output while the sub-task is under way
# How the output of a sub-task begins that came to nothing, or not to its end.
CANCELLED = "The user cancelled this sub-task."
FAILED = "The sub-task failed"
NOT_BEGUN = "Not begun"
SAID_NOTHING = "The sub-task said nothing."

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

ADVISE_TOOL = "lanewise_advise"
ADVISE = FunctionTool(
    name=ADVISE_TOOL,
    description=(
        "Ask a slower and stronger model for a short plan before you answer, where the task is "
        "hard or you are stuck. It sees this conversation. Call it before you say anything."
    ),
    parameters={
        "type": "object",
        "properties": {"question": {"type": "string", "description": "What you want to know."}},
        "required": ["question"],
        "additionalProperties": False,
    },
)
GATEWAY_TOOLS = frozenset({DELEGATE_TOOL, ADVISE_TOOL})
