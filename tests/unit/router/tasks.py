"""Builds tasks, tenants and backends for the router's tests."""

from typing import Any

import msgspec

from backends.contract import (
    BackendGroup,
    BackendInfo,
    BackendStats,
    ContextItem,
    FunctionCallOutput,
    FunctionTool,
    GenerateRequest,
    TextPart,
)
from router.classify.task import GroupLimits, Hints, Task, TaskClass, Tenant

LIMITS = GroupLimits(requests_per_min=600, tokens_per_min=1_000_000, max_concurrent=8)
PRO = Tenant(id="acme", tier="pro", limits={"fast": LIMITS, "deep": LIMITS})
FAST_ONLY = Tenant(id="small", tier="free", limits={"fast": LIMITS})
TOOL_OUTPUT = ContextItem(FunctionCallOutput("call_1", (TextPart("3 files"),)), 4, 1)
TOOL = FunctionTool("ls")


def task(
    ask: str = "Hello",
    *,
    prompt_tokens: int = 100,
    max_output_tokens: int = 4_096,
    tenant: Tenant = PRO,
    items: tuple[ContextItem, ...] = (),
    tools: tuple[FunctionTool, ...] = (),
    hints: Hints | None = None,
    **fields: Any,
) -> Task:
    request = GenerateRequest(
        id="resp_1",
        model="auto",
        items=items,
        num_prompt_tokens=prompt_tokens,
        prefix=(),
        max_output_tokens=max_output_tokens,
        tools=tools,
    )
    plain = Task(
        id="resp_1",
        tenant=tenant,
        request=request,
        hints=hints or Hints(),
        last_user_message=ask,
        num_last_message_tokens=max(1, len(ask) // 4),
        num_turns=1,
        has_images=False,
        last_backend=None,
        arrived_us=0,
    )
    return msgspec.structs.replace(plain, **fields)


def of_class(label: Any = "interactive", *, security: bool = False) -> TaskClass:
    return TaskClass(
        label=label,
        by_words=label,
        p_deep={"interactive": 0.1, "uncertain": 0.5, "deep": 0.9}[label],
        p_security=0.9 if security else 0.1,
        security_sensitive=security,
        expected_output_tokens=500,
        signals=(),
    )


def backend(
    name: str,
    group: BackendGroup,
    *,
    window_tokens: int = 131_072,
    images: bool = False,
    predictions: bool = True,
    healthy: bool = True,
    out_us: int = 0,
    limited: bool = False,
    drained: bool = False,
    running: int = 0,
    waiting: int = 0,
    kv_used_tokens: int = 0,
) -> BackendStats:
    info = BackendInfo(
        name=name,
        model=f"{name.split('-')[0]}-model",
        group=group,
        window_tokens=window_tokens,
        max_output_tokens=32_768,
        accepts_images=images,
        takes_predictions=predictions,
    )
    return BackendStats(
        info=info,
        healthy=healthy,
        out_us=out_us,
        out_for="limit" if limited else "",
        drained=drained,
        num_running=running,
        num_waiting=waiting,
        max_num_seqs=10,
        kv_used_tokens=kv_used_tokens,
        kv_capacity_tokens=1_000_000,
    )
