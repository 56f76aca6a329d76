"""`lanewise policy` checks, compares, applies and rolls back policies over the admin API.

This is an edge.
"""

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from gateway.cli.admin_client import ADMIN_ARGUMENTS, AdminError, ask_admin
from gateway.cli.command import Command, argument, one_of
from gateway.cli.output import one_line, show
from router.comparison.comparison import BacktestReport
from router.comparison.report import as_text
from router.policy.document import Problem
from router.policy.policy import DEFAULT_POLICY, PolicyError, parse_policy
from router.policy.slips import Known, slips_of

OK, NO, TROUBLE, CONFLICT = 0, 1, 2, 3
BACKTEST_S = 3_600.0  # of the gateway's latest tasks, that `--require-backtest` goes by

COMMAND = Command(
    "lanewise policy apply policy.toml",
    description="Say which task goes where: check, compare, apply and roll back policies.",
    note="""\
exit status: 0 done (diff: no difference); 1 not valid, or a difference; 2 refused, or no gateway
answers; 3 somebody else changed the policy meanwhile.
""",
    shared=ADMIN_ARGUMENTS,
)

UNREADABLE = """\
This gateway cannot read version {version}:
{found}
Where it is in force, such a gateway goes on with the last policy that it could read. If a newer
or an older release wrote it, use that release, or change what is named and apply the document as
a new version; if it is damaged, `lanewise policy rollback`, or apply your own copy of it."""

_FILE = argument("file", help="TOML or JSON; - reads standard input")
_VERSION = argument("version", type=int)
_COMMENT = argument("--comment", default="", help="why; for the history")
_EXPECT = argument(
    "--expect",
    type=int,
    metavar="VERSION",
    help="refuse if another version is in force (`diff` prints it; default: the one seen when it "
    "begins)",
)


@COMMAND.command(
    "apply",
    "Store a document as a new version and put it in force.",
    "lanewise policy apply policy.toml --comment 'canary for deep work'",
    _FILE,
    argument("--store-only", action="store_true", help="do not put it in force yet"),
    argument(
        "--require-backtest",
        action="store_true",
        help="refuse if it would have worsened the SLO on the latest tasks; keeps the prediction",
    ),
    _COMMENT,
    one_of(
        _EXPECT,
        argument(
            "--force", action="store_true", help="also over what another admin has put in force"
        ),
    ),
    description="""\
Store a document as a new version and put it in force. What another admin has put in force is only
replaced with --expect, which says that you have seen it, or with --force.
""",
)
def _apply(arguments: argparse.Namespace) -> int:
    submission = _submission(arguments.file) | {"comment": arguments.comment}
    stored = _ask(arguments, "POST", "policies", body=submission)
    _warn(arguments, stored)
    version = stored["version"]
    if arguments.store_only:
        text = f"Stored as version {version}; {stored['active']} is in force."
        return show(arguments, stored, text)
    expected = stored["active"] if arguments.expect is None else arguments.expect
    is_in_force = version == stored["active"]
    if not is_in_force and arguments.expect is None and not arguments.force:
        _refuse_to_undo(arguments, expected, stored["author"])
    if arguments.require_backtest:  # what is in force gets a new prediction by it
        where = f"It is in force as version {version}."
        if not is_in_force:
            where = (
                f"Not applied: it is stored as version {version}. In spite of that: lanewise "
                f"policy activate {version}"
            )
        if not _is_good_enough(arguments, submission, version, where):
            return NO
    if is_in_force:
        text = f"Version {version} is in force already, with this content."
        return show(arguments, stored, text)
    body = {"expected": expected, "comment": arguments.comment}
    change = _ask(arguments, "POST", "policies", str(version), "activate", body=body)
    return show(arguments, stored | change, _changed(change))


def _is_good_enough(
    arguments: argparse.Namespace, submission: dict[str, Any], version: int, where: str
) -> bool:
    """Back-tests a stored version on the gateway's latest tasks, and shows what came of it.

    `where` says in words what becomes of the version if it is not good enough.
    """
    body = {
        "last_s": BACKTEST_S,
        "policies": {submission["name"]: submission["document"]},
        "keep_for": version,
    }
    try:
        found = _ask(arguments, "POST", "backtest", body=body)
    except AdminError as error:
        error.args = (f"{str(error).rstrip('.')}. {where}",)
        raise
    report = msgspec.convert(found, BacktestReport)
    is_worse = any(tested.worsens_slo for tested in report.policies)
    text = as_text(report)
    if is_worse:
        text += f"\nIt worsens the SLO. {where}"
    if is_worse or not arguments.json:
        show(arguments, found, text)
    return not is_worse


def _refuse_to_undo(arguments: argparse.Namespace, active: int, author: str) -> None:
    """Raises `AdminError` if somebody else than the author has put the active version in force."""
    changes = _ask(arguments, "GET", "policies", "audit")
    latest = next((row for row in changes if "active" in row["after"]), None)
    if latest is None or latest["author"] == author or latest["after"]["active"] != active:
        return
    error = AdminError(
        f"{latest['author']} has put version {active} in force: see `lanewise policy diff "
        f"{arguments.file}`, then apply with --expect {active}, or with --force"
    )
    error.exit_status = CONFLICT
    raise error


@COMMAND.command(
    "activate",
    "Put a stored version in force; 0 is the policy each gateway was configured with.",
    "lanewise policy activate 7",
    _VERSION,
    _COMMENT,
    _EXPECT,
)
def _activate(arguments: argparse.Namespace) -> int:
    return _put_in_force(arguments, str(arguments.version), "activate")


@COMMAND.command(
    "rollback",
    "Put the version in force that was before.",
    "lanewise policy rollback --comment 'too slow'",
    _COMMENT,
    _EXPECT,
)
def _rollback(arguments: argparse.Namespace) -> int:
    return _put_in_force(arguments, "rollback")


def _put_in_force(arguments: argparse.Namespace, *path: str) -> int:
    expected = arguments.expect
    if expected is None:
        expected = _ask(arguments, "GET", "policies")["active"]
    body = {"expected": expected, "comment": arguments.comment}
    change = _ask(arguments, "POST", "policies", *path, body=body)
    return show(arguments, change, _changed(change))


def _changed(change: dict[str, Any]) -> str:
    return f"Version {change['active']} is in force; before it was {change['before']}."


@COMMAND.command(
    "shadow",
    "Let a version decide beside the one in force, counted but without effect; 0 ends that.",
    "lanewise policy shadow 8",
    _VERSION,
    _COMMENT,
)
def _shadow(arguments: argparse.Namespace) -> int:
    body = {"version": arguments.version, "comment": arguments.comment}
    change = _ask(arguments, "POST", "policies", "shadow", body=body)
    text = f"Version {arguments.version} is the shadow." if arguments.version else "No shadow."
    return show(arguments, change, text)


@COMMAND.command(
    "check",
    "Say what is wrong with a document, and what is likely a slip.",
    "lanewise policy check policy.toml --offline",
    _FILE,
    argument("--offline", action="store_true", help="ask no gateway, so names are not looked up"),
)
def _check(arguments: argparse.Namespace) -> int:
    submission = _submission(arguments.file)
    if arguments.offline:
        answer = _check_here(submission)
    else:
        answer = _ask(arguments, "POST", "policies", "check", body=submission)
    _warn(arguments, answer)
    found = [_problem(arguments.file, problem) for problem in answer["problems"]]
    text = "\n".join(found) or f"{arguments.file} is a valid policy."
    return show(arguments, answer, text, OK if answer["valid"] else NO)


def _check_here(submission: dict[str, Any]) -> dict[str, Any]:
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    content, name = submission["document"].encode(), submission["name"]
    try:
        warnings = slips_of(parse_policy(content, name), content, name, Known())
    except PolicyError as error:
        problems = error.problems
    view: dict[str, Any] = msgspec.to_builtins(
        {"valid": not problems, "problems": problems, "warnings": warnings}
    )
    return view


@COMMAND.command(
    "diff",
    "Say what a document or a version would change.",
    "lanewise policy diff policy.toml",
    argument("what", help="a file, - for standard input, or a version"),
    argument("--against", type=int, metavar="VERSION", help="(default: what is in force)"),
    argument("--text", action="store_true", help="the documents' lines instead"),
)
def _diff(arguments: argparse.Namespace) -> int:
    body: dict[str, Any] = {"against": arguments.against}
    if arguments.what.isdecimal():
        body["version"] = int(arguments.what)
    else:
        body |= _submission(arguments.what)
    answer = _ask(arguments, "POST", "policies", "diff", body=body)
    lines = [
        f"{change['path']}: {_value(change['from'])} -> {_value(change['to'])}"
        for change in answer["changes"]
    ]
    text = answer["diff"] if arguments.text else "\n".join(lines)
    if answer["changes"] and answer["new"] != answer["expected"]:
        command = "apply" if answer["new"] is None else "activate"
        text += (
            f"\nTo put it in force: lanewise policy {command} {shlex.quote(arguments.what)} "
            f"--expect {answer['expected']}"
        )
    return show(arguments, answer, text or "No difference.", NO if answer["changes"] else OK)


def _value(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "(none)" if value is None else json.dumps(value)


@COMMAND.command(
    "show",
    "Print a version's document, and why a gateway cannot read it, if so.",
    "lanewise policy show 7",
    argument("version", type=int, nargs="?", help="(default: what is in force)"),
)
def _show(arguments: argparse.Namespace) -> int:
    version = arguments.version
    if version is None:
        version = _ask(arguments, "GET", "policies")["in_force"]["version"]
    answer = _ask(arguments, "GET", "policies", str(version))
    problems = answer.get("problems", ())  # an older gateway's answer says nothing of them
    status = show(arguments, answer, answer["document"].rstrip("\n"), NO if problems else OK)
    if problems and not arguments.json:
        found = "\n".join(f"  {_problem(f'v{version}', problem)}" for problem in problems)
        print(UNREADABLE.format(version=version, found=found), file=sys.stderr)
    return status


@COMMAND.command("list", "List versions and what is in force.", "lanewise policy list")
def _list(arguments: argparse.Namespace) -> int:
    answer = _ask(arguments, "GET", "policies")
    running = answer["in_force"]["version"]
    marks = {answer["shadow"]: "shadow", running: "in force"}
    if running and answer["shadow"] == running:
        marks[running] = "in force, shadow"
    lines = [
        f"{row['version']:>5}  {marks.get(row['version'], ''):16}  {_time(row['at'])}  "
        f"{row['author']:16}  {_label(row):16}  {one_line(row['comment'])}".rstrip()
        for row in answer["versions"]
    ]
    lines.append(f"    0  {'in force' if not running else '':16}  as configured")
    if running != answer["active"]:
        lines.append(
            f"Redis names version {answer['active']}, but this gateway goes on with {running}: it "
            "was emptied, or holds what cannot be read. Apply the document again."
        )
    return show(arguments, answer, "\n".join(lines))


def _label(row: dict[str, Any]) -> str:
    """Returns what a document calls itself; one that does not is no default policy."""
    label: str = row["label"]
    return "" if label == DEFAULT_POLICY.version else label


@COMMAND.command(
    "history",
    "Who changed what, and when.",
    "lanewise policy history",
    argument("--limit", type=int, default=20),
)
def _history(arguments: argparse.Namespace) -> int:
    query = {"limit": str(arguments.limit)}
    answer = _ask(arguments, "GET", "policies", "audit", query=query)
    lines = [
        f"{_time(row['at'])}  {row['author']:16}  {row['action'].removeprefix('policies.'):8}  "
        f"{_version_of(row['before'])} -> {_version_of(row['after'])}  "
        f"{one_line(row['comment'])}".rstrip()
        for row in answer
    ]
    return show(arguments, answer, "\n".join(lines) or "No changes yet.")


def _version_of(state: dict[str, Any]) -> int | str:
    return next(iter(state.values()), "-")


def _time(unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(unix_s))


@COMMAND.command(
    "explain",
    "Say which rule takes a prompt, and why each other does not.",
    'lanewise policy explain "Refactor the billing module" --tenant studio --file policy.toml',
    argument("prompt", help="- reads standard input"),
    argument("--tenant", help="(default: the first of the configuration)"),
    argument("--model", default="auto"),
    argument("--effort", help="the request's reasoning effort"),
    argument("--conversation", help="its prompt_cache_key, for canaries"),
    argument("--metadata", action="append", default=[], metavar="NAME=VALUE"),
    one_of(
        argument("--file", help="decide by this document"),
        argument("--version", type=int, help="decide by this version"),
    ),
)
def _explain(arguments: argparse.Namespace) -> int:
    pairs = [pair.partition("=") for pair in arguments.metadata]
    for name, equals, _ in pairs:
        if not equals:
            raise AdminError(f"--metadata {name!r}: expected NAME=VALUE")
    body = {
        "prompt": sys.stdin.read() if arguments.prompt == "-" else arguments.prompt,
        "tenant": arguments.tenant,
        "model": arguments.model,
        "metadata": {name: value for name, _, value in pairs},
        "reasoning_effort": arguments.effort,
        "prompt_cache_key": arguments.conversation,
        "version": arguments.version,
    }
    if arguments.file is not None:
        body |= _submission(arguments.file)
    answer = _ask(arguments, "POST", "explain", body=body)
    text = "\n".join(answer["text"])
    return show(arguments, answer, text, OK if answer["refusal"] is None else NO)


def _ask(arguments: argparse.Namespace, *path: str, **request: Any) -> Any:
    """Calls `ask_admin`, with the exit statuses of these commands for errors."""
    try:
        return ask_admin(arguments, *path, **request)
    except AdminError as error:
        error.exit_status = CONFLICT if error.status == 409 else TROUBLE
        raise


def _read(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise AdminError(f"{path}: not UTF-8: {error.reason}") from None
    except OSError as error:
        raise AdminError(f"{error.filename}: {error.strerror}") from None


def _submission(path: str) -> dict[str, Any]:
    return {"document": _read(path), "name": path}


def _problem(name: str, problem: dict[str, Any]) -> str:
    return msgspec.convert(problem, Problem).text(name)


def _warn(arguments: argparse.Namespace, answer: dict[str, Any]) -> None:
    """Prints warnings to standard error, unless they are part of the JSON."""
    for warning in () if arguments.json else answer["warnings"]:
        print(f"warning: {_problem(arguments.file, warning)}", file=sys.stderr)
