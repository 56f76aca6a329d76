"""What an engine is asked: a task's request, rewritten for the part that a strategy gives it.

What is added goes behind the conversation wherever it can: an engine that holds the conversation's
KV prefix keeps the use of it. And what each strategy asks of the pools, in tokens.
"""

import msgspec

from backends.contract import (
    BackendGroup,
    BackendInfo,
    ContextItem,
    GenerateRequest,
    Item,
    Message,
    TextFormat,
    TextPart,
    ToolChoice,
    Usage,
)
from backends.delegation import DELEGATE
from backends.prompt import measure, prompt_size
from router.classify.task import Strategy
from router.strategies.actions import (
    Answer,
    Ask,
    Begin,
    Comment,
    Converse,
    Draft,
    Judge,
    Revise,
    Subtask,
    Vary,
)
from router.strategies.options import StrategyOptions

# A commentary is to be read while the deep answer is made: a paragraph, not an essay.
BRIEF_MAX_OUTPUT_TOKENS = 256
# What another engine has to read besides the conversation is bounded.
DRAFT_MAX_OUTPUT_TOKENS = 4_096
VARIATION_MAX_OUTPUT_TOKENS = 2_048
SUBTASK_MAX_OUTPUT_TOKENS = 4_096
ADDED_TOKENS = 64  # at most, of each instruction below
TOOL_TOKENS = 160  # at most, of the tool that delegates

BRIEF_INSTRUCTIONS = (
    "Answer in one short paragraph, from what you know now. "
    "A thorough answer by another model follows yours."
)
REVISE_INSTRUCTIONS = (
    "The last assistant message is a draft by a smaller model. Check it against the request, "
    "correct what is wrong, add what is missing, and give the final answer, whole."
)
JUDGE_INSTRUCTIONS = (
    "Below are {number} independent answers by a smaller model to the request above. Judge them, "
    "take the best or merge what is right in them, and give the final answer, whole."
)


def branch_request(
    request: GenerateRequest, begin: Begin, info: BackendInfo, *, alone: bool
) -> GenerateRequest:
    """What a branch asks of its backend: no more than that can give.

    `alone`: there is no other branch, so that the request keeps its id.
    """
    if not alone:
        request = msgspec.structs.replace(request, id=f"{request.id}-{begin.branch}")
    request = _rewritten(request, begin.ask)
    room_tokens = min(info.max_output_tokens, info.window_tokens - request.num_prompt_tokens)
    if request.max_output_tokens > room_tokens:
        request = msgspec.structs.replace(request, max_output_tokens=max(1, room_tokens))
    return request


def leading_place(strategy: Strategy | None) -> int:
    """Which of a route's backends prepares an answer: the first that a strategy is sure to ask."""
    return 1 if strategy == "hedge" else 0


def strategy_usage(
    strategy: Strategy | None,
    options: StrategyOptions,
    num_prompt_tokens: int,
    num_output_tokens: int,
) -> dict[BackendGroup, Usage]:
    """What a strategy is expected to use of each group, of what is reserved before it starts.

    Branches that begin `apart` ask for their own. Without a strategy the answer is the same for
    either group.
    """
    once = _usage(num_prompt_tokens, num_output_tokens)
    if strategy == "brief":
        num_said = min(num_output_tokens, BRIEF_MAX_OUTPUT_TOKENS)
        return {"fast": _usage(num_prompt_tokens + ADDED_TOKENS, num_said), "deep": once}
    if strategy == "hedge":
        return {"deep": once}  # the fast engine asks for its own when it joins
    if strategy == "refine":
        num_drafted = min(num_output_tokens, DRAFT_MAX_OUTPUT_TOKENS)
        read = _usage(num_drafted + ADDED_TOKENS, 0)
        return {"fast": _usage(num_prompt_tokens, num_drafted), "deep": once + read}
    if strategy == "breadth":
        num_varied = min(num_output_tokens, VARIATION_MAX_OUTPUT_TOKENS)
        first = _usage(num_prompt_tokens, num_varied)
        if not options.judged:
            return {"fast": first}
        read = _usage(options.num_variations * num_varied + ADDED_TOKENS, 0)
        return {"fast": first, "deep": once + read}
    if strategy == "delegate":  # each sub-task asks for its own
        return {"fast": _usage(num_prompt_tokens + TOOL_TOKENS, num_output_tokens)}
    return {"fast": once, "deep": once}


def _usage(num_input_tokens: int, num_output_tokens: int) -> Usage:
    return Usage(num_input_tokens=num_input_tokens, num_output_tokens=num_output_tokens)


def _rewritten(request: GenerateRequest, ask: Ask) -> GenerateRequest:
    match ask:
        case Answer():
            return request
        case Comment():
            instructions = "\n\n".join(filter(None, (request.instructions, BRIEF_INSTRUCTIONS)))
            return _in_words(request, BRIEF_MAX_OUTPUT_TOKENS, instructions)
        case Draft():
            return _in_words(request, DRAFT_MAX_OUTPUT_TOKENS, request.instructions)
        case Vary(number):
            varied = _in_words(request, VARIATION_MAX_OUTPUT_TOKENS, request.instructions)
            return msgspec.structs.replace(varied, seed=(request.seed or 0) + number)
        case Revise(draft):
            return _behind(
                request,
                Message("assistant", (TextPart(draft),), phase="commentary"),
                Message("developer", (TextPart(REVISE_INSTRUCTIONS),)),
            )
        case Judge(answers):
            numbered = [f"Answer {n}:\n{answer}" for n, answer in enumerate(answers, start=1)]
            instructions = JUDGE_INSTRUCTIONS.format(number=len(answers))
            text = "\n\n".join((instructions, *numbered))
            return _behind(request, Message("developer", (TextPart(text),)))
        case Converse(part, said):
            return _conversing(request, part, said)
        case Subtask(task, said):
            words = _in_words(request, SUBTASK_MAX_OUTPUT_TOKENS, request.instructions)
            # Reasoning is what it is handed on for; a format belongs to the answer.
            words = msgspec.structs.replace(
                words,
                text_format=TextFormat(),
                reasoning_effort=request.reasoning_effort,
                reasoning_summary=request.reasoning_summary,
            )
            return _behind(words, Message("user", (TextPart(task),)), *said)


def _conversing(request: GenerateRequest, part: str, said: tuple[Item, ...]) -> GenerateRequest:
    """The same tools in every round, so that the prompt's beginning stays the same."""
    choice = request.tool_choice
    if part == "meanwhile" or (part == "closing" and not request.tools):
        choice = ToolChoice("none")
    elif part == "closing" and not choice.names:
        choice = ToolChoice("auto", tuple(tool.name for tool in request.tools))
    request = msgspec.structs.replace(request, tools=(*request.tools, DELEGATE), tool_choice=choice)
    return _behind(request, *said)


def _in_words(
    request: GenerateRequest, max_output_tokens: int, instructions: str | None
) -> GenerateRequest:
    """A request of its own, shorter and without tools, since only the final answer may act."""
    num_prompt_tokens, prefix = prompt_size(instructions, (), request.text_format, request.items)
    return msgspec.structs.replace(
        request,
        instructions=instructions,
        num_prompt_tokens=num_prompt_tokens,
        prefix=prefix,
        max_output_tokens=min(request.max_output_tokens, max_output_tokens),
        tools=(),
        tool_choice=ToolChoice("none"),
        reasoning_effort=None,
        reasoning_summary=None,
    )


def _behind(request: GenerateRequest, *added: Item) -> GenerateRequest:
    """The request with more items behind its own."""
    items: tuple[ContextItem, ...] = (*request.items, *map(measure, added))
    num_prompt_tokens, prefix = prompt_size(
        request.instructions, request.tools, request.text_format, items
    )
    return msgspec.structs.replace(
        request, items=items, num_prompt_tokens=num_prompt_tokens, prefix=prefix
    )
