"""Fits regularised linear and logistic regression on sparse rows, to the same bits everywhere.

Only operations that IEEE 754 defines exactly are used (sums in a fixed order, products, quotients,
roots; no BLAS, no libm), so that two machines that train on the same records get the same weights.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LN2 = 0.6931471805599453
_MAX_LOG_ODDS = 30.0  # beyond, a probability is 0 or 1 to 13 digits


class Rows(msgspec.Struct, frozen=True):
    """Holds a sparse matrix as triples, ordered by row."""

    row: Ints
    column: Ints
    value: Floats
    shape: tuple[int, int]

    def times(self, vector: Floats) -> Floats:
        """Multiplies the matrix by a vector of `shape[1]` numbers."""
        return _sums(self.row, self.value * vector[self.column], self.shape[0])

    def transposed_times(self, vector: Floats) -> Floats:
        """Multiplies the transposed matrix by a vector of `shape[0]` numbers."""
        return _sums(self.column, self.value * vector[self.row], self.shape[1])

    def squared(self) -> "Rows":
        """Returns the matrix with each entry squared."""
        return Rows(self.row, self.column, self.value * self.value, self.shape)


def _sums(index: Ints, values: Floats, count: int) -> Floats:
    return np.bincount(index, weights=values, minlength=count).astype(np.float64)


def total(values: Floats) -> float:
    """Sums in a fixed order; `numpy.sum` may choose its order by the machine."""
    return float(_sums(np.zeros(len(values), np.int64), values, 1)[0])


def sigmoid(log_odds: Floats) -> Floats:
    """Computes 1 / (1 + exp(-x)) to the same bits everywhere, with an error below 1e-12."""
    x = -np.clip(log_odds, -_MAX_LOG_ODDS, _MAX_LOG_ODDS)
    power = np.rint(x / _LN2)
    rest = x - power * _LN2
    exp = np.ones_like(rest)
    for term in range(14, 0, -1):  # Horner's scheme of the exponential series on |rest| < 0.35
        exp = 1.0 + exp * rest / term
    odds: Floats = np.ldexp(exp, power.astype(np.int64))
    return 1.0 / (1.0 + odds)


def fit_logistic(
    rows: Rows, target: Floats, weight: Floats, penalty: Floats, num_steps: int = 10
) -> Floats:
    """Minimises weighted log loss plus `penalty / 2` times the squared coefficients.

    `target` has a probability for each row, and `penalty` a positive number for each column.
    """
    coefficients = np.zeros(rows.shape[1])
    for _ in range(num_steps):
        p = sigmoid(rows.times(coefficients))
        gradient = rows.transposed_times(weight * (p - target)) + penalty * coefficients
        curvature = weight * p * (1 - p) + 1e-6
        step = _solve(rows, curvature, penalty, -gradient)
        coefficients = coefficients + step
        if float(np.max(np.abs(step))) < 1e-3:
            break
    return coefficients


def fit_linear(rows: Rows, target: Floats, weight: Floats, penalty: Floats) -> Floats:
    """Fits weighted ridge regression; arguments are as in `fit_logistic`."""
    right = rows.transposed_times(weight * target)
    return _solve(rows, weight, penalty, right, num_steps=120, tolerance=1e-6)


def fit_scale(score: Floats, target: Floats, weight: Floats) -> tuple[float, float]:
    """Fits Platt scaling: (a, b) such that sigmoid(a * score + b) is calibrated on these rows."""
    count = len(score)
    row = np.arange(count, dtype=np.int64)
    rows = Rows(
        row=np.concatenate([row, row]),
        column=np.concatenate([np.zeros(count, np.int64), np.ones(count, np.int64)]),
        value=np.concatenate([score, np.ones(count)]),
        shape=(count, 2),
    )
    a, b = fit_logistic(rows, target, weight, np.full(2, 1e-3), num_steps=30)
    return float(a), float(b)


def _solve(
    rows: Rows,
    curvature: Floats,
    penalty: Floats,
    right: Floats,
    num_steps: int = 30,
    tolerance: float = 0.03,
) -> Floats:
    """Solves (rows' diag(curvature) rows + diag(penalty)) x = right.

    It takes `num_steps` of preconditioned conjugate gradients, or fewer: those until the residual
    is `tolerance` times the first one.
    """
    scale = 1.0 / (rows.squared().transposed_times(curvature) + penalty)
    solution = np.zeros_like(right)
    residual = right
    direction = scale * residual
    dot = total(residual * direction)
    enough = tolerance * tolerance * total(residual * residual)
    for _ in range(num_steps):
        if total(residual * residual) <= enough:
            break
        mapped = rows.transposed_times(curvature * rows.times(direction)) + penalty * direction
        length = dot / total(direction * mapped)
        solution = solution + length * direction
        residual = residual - length * mapped
        scaled = scale * residual
        next_dot = total(residual * scaled)
        direction = scaled + (next_dot / dot) * direction
        dot = next_dot
    return solution
