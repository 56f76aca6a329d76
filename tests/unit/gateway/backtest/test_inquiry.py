"""Inquiries: which lines of a log they read, and how its engines were configured."""

from pathlib import Path

from backends.contract import BackendInfo
from gateway.backtest.inquiry import Inquiry, question_of
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


def line(number: int, settings: tuple[EngineSettings, ...] = ()) -> bytes:
    record = DecisionRecord(
        id=f"resp_{number}",
        at=1_000.0 + number,
        tenant="studio",
        tier="x",
        model="auto",
        policy=DEFAULT_POLICY.version,
        prompt_tokens=10,
        outcome="ok",
        duration_ms=5.0,
        engine_settings=settings,
    )
    return encode_line(record)


def test_the_last_part_of_a_log_has_its_engines_from_the_whole_of_it(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(b"".join([line(0, (WAFER,)), *(line(n) for n in range(1, 20))]))
    bases = {DEFAULT_POLICY.version: DEFAULT_POLICY}
    asked = question_of(Inquiry(paths=(path,), since_s=1_015.0, bases=bases))
    assert [each.id for each in asked.logged.arrivals] == [f"resp_{n}" for n in range(15, 20)]
    assert [machine.info.name for machine in asked.fleet.machines] == ["wafer"]
