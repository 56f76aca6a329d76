"""Writes lines of a decision log, for those who read one."""

from typing import Any

from backends.contract import BackendInfo
from router.policy.policy import DEFAULT_POLICY
from router.record.recording import DecisionRecord, EngineSettings, encode_line

WAFER = EngineSettings(
    name="wafer",
    kind="wafer",
    info=BackendInfo(
        name="wafer",
        model="lanewise-fast",
        group="fast",
        window_tokens=131_072,
        max_output_tokens=32_768,
    ),
    options={"model": "lanewise-fast"},
)


def line(
    number: int,
    settings: tuple[EngineSettings, ...] = (),
    policy: str | None = DEFAULT_POLICY.version,
    **more: Any,
) -> bytes:
    given: dict[str, Any] = {
        "id": f"resp_{number}",
        "at": 1_000.0 + number,
        "tenant": "studio",
        "tier": "x",
        "model": "auto",
        "policy": policy,
        "prompt_tokens": 10,
        "outcome": "ok",
        "duration_ms": 5.0,
        "engine_settings": settings,
    }
    return encode_line(DecisionRecord(**given | more))
