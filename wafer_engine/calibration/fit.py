"""Fits a handful of positive constants by least squares, robust against a few bad rows.

Both engines fit their constants with it and write them out; nothing here runs while serving.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from wafer_engine.calibration.rows import Prediction, Row, predicted_values

Vector = npt.NDArray[np.float64]
Constants = TypeVar("Constants", bound=msgspec.Struct)

SOFT_SCALE = 0.1  # log error above which a row loses weight
_MAX_STEPS = 200


def fit_constants(
    blank: Constants,
    first_guess: Mapping[str, float],
    log_errors: Callable[[Constants], Vector],
    difference: float = 1e-5,
) -> Constants:
    """Fits the free fields of a set of constants, each to four digits.

    `blank` is the set, with its stated values; `first_guess` gives free fields' initial values,
    above zero. `log_errors` and `difference` are as for `fit_positive`.
    """

    def with_values(values: Sequence[float]) -> Constants:
        return msgspec.structs.replace(blank, **dict(zip(first_guess, values, strict=True)))

    fitted = fit_positive(
        lambda values: log_errors(with_values(values.tolist())),
        np.array(list(first_guess.values())),
        difference=difference,
    )
    return with_values([rounded(value) for value in fitted.tolist()])


def rounded(value: float) -> float:
    """Rounds to four digits: the rows support no more."""
    return float(f"{value:.4g}")


def row_errors(predict: Callable[[Row], Prediction], rows: Sequence[Row]) -> Vector:
    """Returns the log errors of the predictions of rows that constants are fitted to.

    Raises ValueError if one of the rows cannot be modelled.
    """
    published = np.array([float(row["value"]) for row in rows])
    return np.asarray(np.log(np.array(predicted_values(predict, rows)) / published))


def write_constants(folder: Path, fitted: Mapping[str, msgspec.Struct]) -> list[Path]:
    """Writes one JSON file per set of constants into a folder."""
    for name, constants in fitted.items():
        text = msgspec.json.format(msgspec.json.encode(constants), indent=2)
        (folder / f"{name}.json").write_bytes(text + b"\n")
    return [folder / f"{name}.json" for name in fitted]


def fit_positive(
    log_errors: Callable[[Vector], Vector],
    start: Vector,
    difference: float = 1e-5,
    most: Vector | None = None,
    max_steps: int = _MAX_STEPS,
) -> Vector:
    """Finds positive constants, in the order of `start`, that minimise log errors.

    Levenberg-Marquardt on the constants' logarithms, with a soft-L1 loss: an error far above
    `SOFT_SCALE` pulls by its size, not by its square. `log_errors` maps constants to
    log(predicted / published), one per row; `start` is above zero. `difference` is the step of the
    finite differences, in log space: wider for errors that jump, as a scheduler's do. `most` bounds
    each constant from above. `max_steps` is for errors that take long: each step is a derivative.
    """
    top = np.log(np.full(len(start), np.inf) if most is None else most)
    x = np.minimum(np.log(np.asarray(start, dtype=np.float64)), top)
    damping = 1e-2
    errors = log_errors(np.exp(x))
    loss = soft_l1(errors)
    for _ in range(max_steps):
        slopes = jacobian(lambda at: log_errors(np.exp(at)), x, difference)
        weights = 1.0 / np.sqrt(1.0 + (errors / SOFT_SCALE) ** 2)
        normal = slopes.T @ (weights[:, None] * slopes)
        gradient = slopes.T @ (weights * errors)
        improved = False
        while damping < 1e9 and not improved:
            scaled = normal + damping * np.diag(np.diag(normal) + 1e-12)
            step = np.clip(np.linalg.solve(scaled, -gradient), -1.0, 1.0)
            step = np.minimum(x + step, top) - x
            moved_errors = log_errors(np.exp(x + step))
            new_loss = soft_l1(moved_errors)
            improved = new_loss < loss
            damping = max(damping / 3.0, 1e-9) if improved else damping * 4.0
        if not improved:
            break
        gain = loss - new_loss
        x, errors, loss = x + step, moved_errors, new_loss
        if gain < 1e-12 * max(loss, 1e-12):
            break
    return np.asarray(np.exp(x))


def jacobian(errors: Callable[[Vector], Vector], at: Vector, difference: float) -> Vector:
    """Returns how each error changes with each value, by one-sided differences."""
    here = errors(at)
    moved = (errors(at + difference * unit) for unit in np.eye(len(at)))
    return np.stack([(there - here) / difference for there in moved], axis=1)


def soft_l1(errors: Vector) -> float:
    """Sums losses that are quadratic below `SOFT_SCALE` and linear above it."""
    return float(np.sum(np.sqrt(1.0 + (errors / SOFT_SCALE) ** 2) - 1.0))
