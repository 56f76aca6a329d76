"""Tests the runner of the scripts that take minutes."""

from importlib import import_module
from pathlib import Path

import pytest

from tests.accept import __main__ as runner


@pytest.mark.parametrize("name", [script.name for script in runner.scripts()])
def test_every_script_can_be_loaded_and_says_what_it_asks(name: str) -> None:
    script = import_module(f"tests.accept.{name}")

    assert script.__doc__
    assert callable(script.main)


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        ("return True", ""),
        ("return False", "ended with 1"),
        ("return None", "ended with 1"),  # it says nothing, so it does not say that all held
        ("raise SystemExit(3)", "ended with 3"),
        ("import time; time.sleep(600)", "was not done after 1 s"),
    ],
)
def test_a_verdict_is_what_main_says(
    body: str, failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f'"""A probe."""\nLIMIT_S = 1\n\n\ndef main() -> bool:\n    {body}\n'
    (tmp_path / "probe.py").write_text(source)
    (tmp_path / "support.py").write_text('"""It has no verdict."""\n')
    monkeypatch.setattr(runner, "FOLDER", tmp_path)
    monkeypatch.setattr(
        runner,
        "RUN",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {{0}}; "
        "sys.exit({0}.main() is not True)",
    )
    found = list(runner.scripts())

    assert found == [runner.Script("probe", "A probe.", 1)]
    if "SystemExit" in body or "return" in body:  # a starting interpreter may take long
        found = [found[0]._replace(limit_s=60)]
    assert runner.run(found[0]).failure == failure
