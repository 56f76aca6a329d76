"""Tests `lanewise usage reconcile`: which days a gateway can be asked for."""

import datetime
from pathlib import Path

import pytest

from gateway.cli.main import main

HEADER = "day,model,input_tokens,output_tokens,cost\n"


def test_days_that_no_gateway_knows_any_more_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    today = datetime.datetime.now(datetime.UTC).date()
    old = today - datetime.timedelta(days=45)
    bill = tmp_path / "bill.csv"
    bill.write_text(f"{HEADER}{old},lanewise-fast,1,2,0.5\n")
    assert main(["usage", "reconcile", str(bill), "--url", "http://127.0.0.1:1"]) == 2
    said = capsys.readouterr().err
    assert f"it begins on {old}, and a gateway knows the last 40 days" in said
    assert "--ledger" in said
