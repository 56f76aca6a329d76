"""Writes reports: predicted beside published figures, and the constants behind them."""

import statistics
from collections.abc import Callable, Mapping, Sequence

import msgspec

from wafer_engine.calibration.rows import Prediction, Row

CONSTANTS_TITLE = "Constants and the rows they were fitted to"  # above `constants_lines`


class ComparedRow(msgspec.Struct, frozen=True):
    """Is one row beside its prediction."""

    row_id: str
    published: float
    unit: str
    prediction: Prediction

    @property
    def error(self) -> float:
        """Returns the prediction's relative error; only for rows with a prediction."""
        assert self.prediction.value is not None
        return self.prediction.value / self.published - 1.0


def compare(rows: Sequence[Row], predict: Callable[[Row], Prediction]) -> list[ComparedRow]:
    """Predicts every row, in order."""
    return [
        ComparedRow(row["id"], float(row["value"]), row.get("unit", ""), predict(row))
        for row in rows
    ]


def row_lines(rows: Sequence[Row], predict: Callable[[Row], Prediction]) -> list[str]:
    """Begins a report: every row beside its prediction, then each group's errors."""
    compared = compare(rows, predict)
    return [table(compared), "", summary(compared), ""]


def table(compared: Sequence[ComparedRow]) -> str:
    """Lists every row: id, predicted, published, error, or why it is not modelled."""
    width = max((len(row.row_id) for row in compared), default=2)
    lines = [f"{'row':{width}}  {'predicted':>12}  {'published':>12}  {'error':>7}  unit"]
    for row in compared:
        predicted, error, remark = "-", "-", f"not modelled: {row.prediction.reason}"
        if row.prediction.value is not None:
            predicted, error = f"{row.prediction.value:,.6g}", f"{row.error:+.1%}"
            remark = row.unit
        lines.append(
            f"{row.row_id:{width}}  {predicted:>12}  {row.published:12,.6g}  {error:>7}  {remark}"
        )
    return "\n".join(lines)


def summary(compared: Sequence[ComparedRow]) -> str:
    """Lists each group: rows modelled, mean, median and worst absolute error, and its bar."""
    groups: dict[str, list[ComparedRow]] = {}
    for row in compared:
        groups.setdefault(row.prediction.group, []).append(row)
    width = max((len(name) for name in groups), default=5)
    lines = [
        f"{'group':{width}}  {'rows':>5}  {'modelled':>8}  {'mean':>7}  {'median':>7}  "
        f"{'worst':>7}  {'bar':>5}  worst row"
    ]
    for name, members in groups.items():
        errors = {
            member.row_id: abs(member.error)
            for member in members
            if member.prediction.value is not None
        }
        line = f"{name:{width}}  {len(members):5}  {len(errors):8}"
        if errors:
            worst = max(errors, key=lambda row_id: errors[row_id])
            bar = members[0].prediction.bar
            line += (
                f"  {statistics.fmean(errors.values()):7.1%}  "
                f"{statistics.median(errors.values()):7.1%}  {errors[worst]:7.1%}  "
                f"{'' if bar is None else format(bar, '.0%'):>5}  {worst}"
            )
        lines.append(line)
    return "\n".join(lines)


def constants_lines(name: str, values: Mapping[str, float], source: str) -> list[str]:
    """Shows a set of constants in two lines: their values, and the rows they were fitted to."""
    shown = " ".join(f"{field}={value:g}" for field, value in values.items())
    return [f"  {name}: {shown}", f"    {source}"]
