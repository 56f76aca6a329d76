"""`lanewise eval` and `lanewise route --batch`: how good the classifier is, and many decisions.

An edge: it uses the event loop and the clock.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

from gateway.cli.preview import find_tenant, idle_stats
from gateway.config.config import Config
from gateway.config.sections import ConfigError
from gateway.process.app import load_policy
from router.classify.task import Hints
from router.classify.weights_file import WEIGHTS_PATH, WeightsError, load_model
from router.policy.policy import DEFAULT_POLICY
from router.record.batch import Desk, decide_lines
from router.record.labelled import RecordError, read_records
from router.record.report import judge, report, stability_report


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `eval`."""
    text = "Measure the classifier on labelled records."
    parser = commands.add_parser(
        "eval",
        help=text,
        description=text,
        epilog="example: lanewise eval --data records.jsonl\n"
        "docs/classifier.md says what each figure means.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data",
        metavar="FILE",
        type=Path,
        nargs="+",
        required=True,
        help="JSONL, plain or gzipped, or a folder of such files",
    )
    parser.add_argument(
        "--weights",
        metavar="FILE",
        type=Path,
        default=WEIGHTS_PATH,
        help="another classifier's weights (default: the installed ones)",
    )
    parser.set_defaults(run=_eval)


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
    print("\n".join(report([judge(record, desk) for record in records])))
    print("\n".join(stability_report(records, desk)))
    return 0


def route_batch(config: Config, path: str, *, model: str, tenant_id: str | None) -> int:
    """Decide every line of a JSONL file (`-`: standard input); decisions go to standard output.

    Raises:
        ConfigError: The file cannot be read, the tenant is unknown, or the policy is not valid.
    """
    desk = Desk(
        policy=load_policy(config.policy_path),
        tenant=find_tenant(config, tenant_id),
        stats=asyncio.run(idle_stats(config)),
        hints=Hints(model=model),
        unix_s=time.time(),
    )
    try:
        with sys.stdin.buffer if path == "-" else open(path, "rb") as lines:
            for decision in decide_lines(lines, desk, time.perf_counter_ns):
                sys.stdout.buffer.write(decision + b"\n")
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise ConfigError(f"--batch {path}: {error.strerror}") from error
    sys.stdout.buffer.flush()
    return 0
