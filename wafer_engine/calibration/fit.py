"""Least squares for a handful of positive constants, robust against a few bad rows.

Used offline by the calibrate commands, never while serving.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

SOFT_SCALE = 0.1  # log error above which a row loses weight
_MAX_ROUNDS = 200


def fit_positive(
    log_errors: Callable[[Vector], Vector],
    start: Vector,
    soft_scale: float = SOFT_SCALE,
    difference: float = 1e-5,
) -> Vector:
    """Find positive constants that make log errors small.

    Levenberg-Marquardt on the constants' logarithms, with a soft-L1 loss: an error far above
    `soft_scale` pulls by its size, not by its square.

    Args:
        log_errors: Constants to log(predicted / published), one per row.
        start: First guess, all above zero.
        soft_scale: Log error above which rows lose weight.
        difference: Step of the finite differences, in log space; wider for errors that jump, as a
            scheduler's do.

    Returns:
        The constants, in the order of `start`.
    """
    x = np.log(np.asarray(start, dtype=np.float64))
    damping = 1e-2
    errors = log_errors(np.exp(x))
    loss = soft_l1(errors, soft_scale)
    for _ in range(_MAX_ROUNDS):
        jacobian = _jacobian(log_errors, x, errors, difference)
        weights = 1.0 / np.sqrt(1.0 + (errors / soft_scale) ** 2)
        normal = jacobian.T @ (weights[:, None] * jacobian)
        gradient = jacobian.T @ (weights * errors)
        improved = False
        while damping < 1e9 and not improved:
            scaled = normal + damping * np.diag(np.diag(normal) + 1e-12)
            step = np.clip(np.linalg.solve(scaled, -gradient), -1.0, 1.0)
            trial = log_errors(np.exp(x + step))
            trial_loss = soft_l1(trial, soft_scale)
            improved = trial_loss < loss
            damping = max(damping / 3.0, 1e-9) if improved else damping * 4.0
        if not improved:
            break
        gain = loss - trial_loss
        x, errors, loss = x + step, trial, trial_loss
        if gain < 1e-12 * max(loss, 1e-12):
            break
    return np.asarray(np.exp(x))


def soft_l1(errors: Vector, scale: float = SOFT_SCALE) -> float:
    """Sum of losses that grow by the square below `scale` and by the size above it."""
    return float(np.sum(np.sqrt(1.0 + (errors / scale) ** 2) - 1.0))


def _jacobian(
    log_errors: Callable[[Vector], Vector], x: Vector, errors: Vector, difference: float
) -> npt.NDArray[np.float64]:
    columns = []
    for index in range(len(x)):
        moved = x.copy()
        moved[index] += difference
        columns.append((log_errors(np.exp(moved)) - errors) / difference)
    return np.stack(columns, axis=1)
