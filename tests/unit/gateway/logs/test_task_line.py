"""Tests a task's line, for machines and for people."""

import json

from gateway.logs.task_line import TaskLine, as_json, as_text

WHOLE = TaskLine(
    at=1_700_000_000.25,
    id="resp_1",
    tenant="studio",
    key="k1",
    model="auto",
    route="deep",
    strategy="hedge",
    rule="long asks",
    answered_by="gpu",
    outcome="ok",
    ttft_ms=12.5,
    duration_ms=1_234.4,
    input_tokens=20,
    output_tokens=312,
)
REFUSED = TaskLine(
    at=0.0, id="resp_2", tenant="t", outcome="invalid", error="model_not_found", duration_ms=0.4
)


def test_json_has_what_is_known() -> None:
    line = json.loads(as_json(WHOLE))
    assert (line["level"], line["event"]) == ("info", "task")
    assert line["rule"] == "long asks"
    assert line["ttft_ms"] == 12.5
    assert "error" not in line
    assert "route" not in json.loads(as_json(REFUSED))


def test_text_is_one_line_for_a_person() -> None:
    assert as_text(WHOLE) == (
        "task resp_1 ok: deep (hedge), 20 \N{RIGHTWARDS ARROW} 312 tokens, 1,234 ms, "
        "first after 12 ms, rule long asks, tenant studio"
    )
    assert as_text(REFUSED) == (
        "task resp_2 invalid model_not_found: -, 0 \N{RIGHTWARDS ARROW} 0 tokens, 0 ms, tenant t"
    )
