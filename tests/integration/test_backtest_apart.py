"""A back-test's own process runs our code, and returns what that does."""

from pathlib import Path

import pytest

from gateway.backtest.apart import Apart
from gateway.backtest.inquiry import seconds_of


async def test_a_folder_named_as_ours_where_the_gateway_was_started_is_not_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "gateway"
    other.mkdir()
    (other / "__init__.py").write_text("raise SystemExit('this is another gateway')")
    monkeypatch.chdir(tmp_path)
    assert await Apart().call(seconds_of, "15m") == 900
