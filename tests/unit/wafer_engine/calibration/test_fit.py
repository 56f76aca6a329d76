"""The fitter finds constants that made the data, and is not led by one bad row."""

import numpy as np
import pytest

from wafer_engine.calibration.fit import fit_positive, soft_l1

SIZES = np.array([3.0, 6.0, 12.0, 24.0, 48.0, 96.0])


def model(constants: np.ndarray) -> np.ndarray:
    return constants[0] * SIZES**2 + constants[1] * SIZES + constants[2]


def test_known_constants_are_found() -> None:
    truth = np.array([0.31, 3.4, 220.0])
    fitted = fit_positive(lambda c: np.log(model(c) / model(truth)), np.array([1.0, 1.0, 10.0]))
    assert fitted == pytest.approx(truth, rel=1e-4)


def test_one_bad_row_moves_little() -> None:
    truth = np.array([0.31, 3.4, 220.0])
    data = model(truth)
    data[2] *= 3.0
    fitted = fit_positive(lambda c: np.log(model(c) / data), np.array([1.0, 1.0, 10.0]))
    good = np.arange(len(SIZES)) != 2
    assert np.abs(model(fitted) / model(truth) - 1)[good].max() < 0.12


def test_a_constant_without_effect_stays() -> None:
    fitted = fit_positive(lambda c: np.log(c[:1] / 5.0), np.array([1.0, 7.0]))
    assert fitted == pytest.approx([5.0, 7.0])


def test_soft_l1_grows_by_size_above_its_scale() -> None:
    assert soft_l1(np.array([0.0])) == 0.0
    assert soft_l1(np.array([2.0])) < 2.2 * soft_l1(np.array([1.0]))
    assert soft_l1(np.array([0.02])) > 3.8 * soft_l1(np.array([0.01]))
