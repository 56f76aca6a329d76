"""`lanewise eval` measures the classifier on labelled records. This is an edge."""

import argparse
from pathlib import Path

from gateway.cli.command import Command, argument
from gateway.config.sections import ConfigError
from router.classify.task import TENANT_ID
from router.classify.weights_file import WEIGHTS_PATH, WeightsError, load_model
from router.policy.policy import DEFAULT_POLICY
from router.record.batch import Desk
from router.record.economy_report import PRICE_RATIO, economy_report
from router.record.labelled import RecordError, read_records
from router.record.report import judge, report, stability_report


def _eval(arguments: argparse.Namespace) -> int:
    try:
        records = read_records(arguments.data)
        model = load_model(arguments.weights)
    except (RecordError, WeightsError) as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise ConfigError(f"--data {error.filename}: {error.strerror}") from error
    if not records:
        raise ConfigError("--data: no records found")
    made = model.provenance
    print(
        f"Classifier {made.version}, weights {model.content_hash}, trained on "
        f"{made.num_records:,} records; judged on {len(records):,}\n"
    )
    desk = Desk(policy=DEFAULT_POLICY, model=model)
    judged = [judge(record, desk) for record in records]
    print("\n".join(report(judged)))
    economy = economy_report(judged, desk.own_policy, arguments.price_ratio, arguments.tenant)
    print("\n".join(economy))
    print("\n".join(stability_report(records, desk)))
    return 0


def _tenant_id(text: str) -> str:
    if not TENANT_ID.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"expected a tenant's id (a to z, 0 to 9, hyphens), got {text!r}"
        )
    return text


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to below 1, got {text!r}")
    return value


COMMAND = Command(
    "lanewise eval --data records.jsonl\ndocs/classifier.md says what each figure means.",
    (
        argument(
            "--data",
            metavar="FILE",
            type=Path,
            nargs="+",
            required=True,
            help="JSONL, plain or gzipped, or a folder of such files",
        ),
        argument(
            "--weights",
            metavar="FILE",
            type=Path,
            default=WEIGHTS_PATH,
            help="another classifier's weights (default: the installed ones)",
        ),
        argument(
            "--price-ratio",
            metavar="SHARE",
            type=_share,
            default=PRICE_RATIO,
            help=f"a fast answer's price over a deep one's, below 1 (default: {PRICE_RATIO:g})",
        ),
        argument(
            "--tenant",
            metavar="ID",
            type=_tenant_id,
            help="whose pairs these are: says whether verify should be its default",
        ),
    ),
    run=_eval,
)
