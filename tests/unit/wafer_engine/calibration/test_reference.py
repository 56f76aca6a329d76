"""Tests the shipped constants against the whole reference set, where that is at hand."""

import pytest

from wafer_engine.calibration.calibrate import calibrate
from wafer_engine.calibration.report import compare
from wafer_engine.calibration.rows import find_reference, read_rows
from wafer_engine.calibration.wafer_rows import WaferRows
from wafer_engine.hardware.constants import SERVICE_CONSTANTS, WSE2_CONSTANTS, WSE3_CONSTANTS

PATH = find_reference("wse.csv", None)
pytestmark = pytest.mark.skipif(
    PATH is None, reason="no reference rows at ../shared/data/reference/wse.csv"
)


def rows() -> list[dict[str, str]]:
    assert PATH is not None
    return read_rows(PATH)


def test_calibrate_gives_the_shipped_constants() -> None:
    shipped = {"wse2": WSE2_CONSTANTS, "wse3": WSE3_CONSTANTS, "service": SERVICE_CONSTANTS}
    assert calibrate(rows()) == shipped


def test_bars_are_met() -> None:
    groups: dict[str, list[float]] = {}
    bars: dict[str, float] = {}
    for compared in compare(rows(), WaferRows().predict):
        prediction = compared.prediction
        if prediction.value is not None and prediction.bar is not None:
            groups.setdefault(prediction.group, []).append(abs(compared.error))
            bars[prediction.group] = prediction.bar
    assert len(groups) >= 10
    for group, errors in groups.items():
        assert sum(errors) / len(errors) <= bars[group], group
        if bars[group] <= 0.03:
            assert max(errors) <= 0.05, group
