"""The shipped constants against the whole reference set, where it lies beside the checkout."""

import pytest

from wafer_engine.calibration.calibrate import calibrate
from wafer_engine.calibration.report import find_reference, outcomes_of, read_rows
from wafer_engine.calibration.rows import WaferRows
from wafer_engine.hardware.constants import SERVICE_CONSTANTS, WSE2_CONSTANTS, WSE3_CONSTANTS

PATH = find_reference("wse.csv", None)
pytestmark = pytest.mark.skipif(
    PATH is None, reason="no reference rows at ../shared/data/reference/wse.csv"
)


def rows() -> list[dict[str, str]]:
    assert PATH is not None
    return read_rows(PATH)


def test_calibrate_gives_the_shipped_constants() -> None:
    assert calibrate(rows()) == (WSE2_CONSTANTS, WSE3_CONSTANTS, SERVICE_CONSTANTS)


def test_bars_are_met() -> None:
    predictor = WaferRows()
    groups: dict[str, list[float]] = {}
    bars: dict[str, float] = {}
    data = rows()
    for outcome in outcomes_of(data, [predictor.predict(row) for row in data]):
        prediction = outcome.prediction
        if prediction.value is not None and prediction.bar is not None:
            groups.setdefault(prediction.group, []).append(abs(outcome.error))
            bars[prediction.group] = prediction.bar
    assert len(groups) >= 10
    for group, errors in groups.items():
        assert sum(errors) / len(errors) <= bars[group], group
        if bars[group] <= 0.03:
            assert max(errors) <= 0.05, group
