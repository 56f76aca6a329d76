"""Tests what a tool's output says of its call."""

import pytest

from router.agent_runs.tool_calls import CallKind
from router.agent_runs.tool_results import result_of

CODEX = "Chunk ID: {0}\nWall time: 0.{0} seconds\nProcess exited with code {1}\nOutput:\n{2}"
SOURCE = 'raise ValueError("x")\n# FAILED tests/test_a.py\nTraceback (most recent call last):'

VERDICTS: list[tuple[str, CallKind, str]] = [
    (CODEX.format(12, 0, "done"), "other", "went through"),
    (CODEX.format(12, 2, "done"), "other", "failed"),
    (CODEX.format(12, 1, ""), "read", "went through"),
    (CODEX.format(12, 2, "rg: bad flag"), "read", "failed"),
    (CODEX.format(12, 0, SOURCE), "read", "went through"),
    (CODEX.format(12, 0, SOURCE), "other", "went through"),
    (CODEX.format(12, 0, "3 passed"), "test", "passed"),
    (CODEX.format(12, 0, "1 failed, 3 passed"), "test", "failed"),
    (CODEX.format(12, 0, "all is well"), "test", "passed"),
    ('{"output":"x","metadata":{"exit_code":1,"duration_seconds":0.1}}', "other", "failed"),
    ('{"output":"x","metadata":{"exit_code":0,"duration_seconds":0.1}}', "other", "went through"),
    ("x\n[exit code: 127]", "other", "failed"),
    ("returncode: -9", "other", "failed"),
    ("Error: Exit code 1\n", "read", "went through"),
    ("Error: Exit code 2\n", "read", "failed"),
    ("Error: nothing there", "read", "failed"),
    ("<tool_use_error>File has not been read yet.</tool_use_error>", "other", "failed"),
    ('{"isError": true, "content": []}', "other", "failed"),
    ('{"error": "no such city"}', "other", "failed"),
    ('{"error": null, "degrees": 7}', "other", "went through"),
    ('{"status": "failed"}', "other", "failed"),
    (SOURCE, "read", "went through"),
    (SOURCE, "other", "failed"),
    ("cat: a.py: No such file or directory", "read", "failed"),
    ("bash: tox: command not found", "other", "failed"),
    ("error[E0308]: mismatched types", "other", "failed"),
    ("thread 'main' panicked at src/main.rs:3", "other", "failed"),
    ("--- FAIL: TestOrder (0.00s)", "test", "failed"),
    ("Ran 3 tests\nFAILED (failures=1)", "test", "failed"),
    ("test result: ok. 3 passed; 0 failed", "test", "passed"),
    ("ok  \tgithub.com/a/b\t0.4s", "test", "passed"),
    ("Tests: 4 passed, 4 total", "other", "passed"),
    ("The error handling is in src/errors.py", "other", "went through"),
    ("0 errors, 0 warnings", "other", "went through"),
    ("Success. Updated the following files:\nM src/errors.py", "edit", "went through"),
    ("The file src/failed.py has been updated.", "edit", "went through"),
    ("Error: String to replace not found in file.", "edit", "failed"),
    ("Failed to find expected lines in a.py", "edit", "failed"),
    ("", "other", "went through"),
]


@pytest.mark.parametrize(("text", "kind", "verdict"), VERDICTS)
def test_verdicts(text: str, kind: CallKind, verdict: str) -> None:
    assert result_of(text, kind).verdict == verdict


def test_a_failure_is_recognised_by_its_error() -> None:
    first = result_of("build 1 at 12:00:01\nE   KeyError: 'a'\n1 failed in 0.31s", "test")
    second = result_of("another build\nE   KeyError: 'a'\n1 failed in 2.7s", "test")
    third = result_of("build 1 at 12:00:01\nE   KeyError: 'b'\n1 failed in 0.31s", "test")
    assert first.failure == second.failure != third.failure


def test_an_output_is_the_same_but_for_times_and_ids() -> None:
    texts = [CODEX.format(n, 0, "total 7") for n in (12, 345)]
    assert len({result_of(text, "other").signature for text in texts}) == 1
    assert result_of("45 %", "other").signature != result_of("50 %", "other").signature


def test_reading_takes_no_time_that_its_words_could_make_long() -> None:
    for text in (": " * 1_000, "a: " * 700, "Error" * 400, "1 " * 1_000):
        result_of(text, "other")
