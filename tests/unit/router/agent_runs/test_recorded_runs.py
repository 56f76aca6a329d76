"""Tests recorded runs: a loop goes up within two calls, and a run that works does not."""

import json
from pathlib import Path

import pytest

from tests.unit.router.agent_runs.recorded_runs import recorded_run
from tests.unit.router.agent_runs.replaying import replayed

TRACEBACK = "Traceback (most recent call last):\nKeyError: 'total'"


def recorded(path: Path, results: list[str], *, is_loop: bool) -> Path:
    """Writes a run as SWE-agent does; a loop runs the same command again and again."""
    history: list[dict[str, object]] = [{"role": "user", "content": "Make the script print 3."}]
    for number, result in enumerate(results):
        command = "python total.py" if is_loop else f"open part_{number}.py"
        call = {"name": "bash", "arguments": json.dumps({"command": command})}
        history += [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": str(number), "function": call}],
            },
            {"role": "tool", "content": result, "tool_call_ids": [str(number)]},
        ]
    history.append({"role": "assistant", "content": "Done."})
    path.write_text(json.dumps({"history": history}))
    return path


def test_a_recorded_loop_goes_up_within_two_calls_and_a_run_that_works_never(
    tmp_path: Path,
) -> None:
    loop = recorded_run(recorded(tmp_path / "loop.traj", [TRACEBACK] * 5, is_loop=True))
    first_repeated = 2  # the request that has the same failure twice
    assert "deep" in replayed(loop, seed=1).labels[: first_repeated + 2]
    works = recorded_run(recorded(tmp_path / "works.traj", ["1:def total():"] * 5, is_loop=False))
    assert "deep" not in replayed(works, seed=1).labels


def test_a_file_without_messages_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"steps": []}')
    with pytest.raises(ValueError, match=r"other\.json: expected messages"):
        recorded_run(path)
