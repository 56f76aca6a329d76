"""Tables of predicted against published figures."""

import csv
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

Row = Mapping[str, str]

REFERENCE_FOLDER = Path("../shared/data/reference")  # beside the checkout


class Prediction(msgspec.Struct, frozen=True):
    """What a model says about one published figure: a value, or why there is none."""

    group: str  # rows of one kind, judged together
    value: float | None = None  # in the row's own unit
    reason: str = ""  # set exactly when value is None
    bar: float | None = None  # mean absolute error the group is held to, where one is set
    constants: str = ""  # which fitted set made the value, where a model has several


class Outcome(msgspec.Struct, frozen=True):
    """One row beside its prediction."""

    row_id: str
    published: float
    unit: str
    prediction: Prediction

    @property
    def error(self) -> float:
        """Relative error of the prediction; only where there is one."""
        assert self.prediction.value is not None
        return self.prediction.value / self.published - 1.0


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read a CSV file with a header line; every cell stays text. A byte order mark is skipped."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def write_rows(rows: Sequence[Row]) -> str:
    """CSV text of rows that share their first one's columns."""
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return out.getvalue()


def find_reference(name: str, given: str | None) -> Path | None:
    """The rows file to use: the given one, else `name` in the reference folder, else none."""
    path = Path(given) if given else REFERENCE_FOLDER / name
    return path if path.is_file() else None


def outcomes_of(rows: Iterable[Row], predictions: Iterable[Prediction]) -> list[Outcome]:
    """Pair rows with their predictions, in order."""
    return [
        Outcome(row["id"], float(row["value"]), row.get("unit", ""), prediction)
        for row, prediction in zip(rows, predictions, strict=True)
    ]


def table(outcomes: Sequence[Outcome]) -> str:
    """Every row: id, predicted, published, error, or why it is not modelled."""
    width = max((len(outcome.row_id) for outcome in outcomes), default=2)
    lines = [f"{'row':{width}}  {'predicted':>12}  {'published':>12}  {'error':>7}  unit"]
    for outcome in outcomes:
        prediction, published = outcome.prediction, f"{outcome.published:12,.6g}"
        if prediction.value is None:
            lines.append(
                f"{outcome.row_id:{width}}  {'-':>12}  {published}  {'-':>7}  "
                f"not modelled: {prediction.reason}"
            )
            continue
        lines.append(
            f"{outcome.row_id:{width}}  {prediction.value:12,.6g}  {published}  "
            f"{outcome.error:+7.1%}  {outcome.unit}"
        )
    return "\n".join(lines)


def summary(outcomes: Sequence[Outcome]) -> str:
    """Per group: rows modelled, mean, median and worst absolute error, and the group's bar."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.prediction.group, []).append(outcome)
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
        if not errors:
            lines.append(f"{name:{width}}  {len(members):5}  {0:8}")
            continue
        worst = max(errors, key=lambda row_id: errors[row_id])
        bar = members[0].prediction.bar
        lines.append(
            f"{name:{width}}  {len(members):5}  {len(errors):8}  "
            f"{statistics.fmean(errors.values()):7.1%}  {statistics.median(errors.values()):7.1%}  "
            f"{errors[worst]:7.1%}  {'' if bar is None else format(bar, '.0%'):>5}  {worst}"
        )
    return "\n".join(lines)
