"""`lanewise policy`: check, compare, apply and roll back policies, over the admin API.

An edge: it uses the clock.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from gateway.cli.admin_client import AdminError, add_admin_arguments, ask_admin
from router.policy.policy import PolicyError, parse_policy

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Run = Callable[[argparse.Namespace], int]

OK, NO, TROUBLE, CONFLICT = 0, 1, 2, 3

_EPILOG = """\
exit status: 0 done (diff: no difference); 1 not valid, or a difference; 2 refused, or no gateway
answers; 3 somebody else changed the policy meanwhile.
"""


def add(commands: Commands) -> None:
    """Add `policy` and all below it."""
    parser = commands.add_parser(
        "policy",
        help="Check, compare, apply and roll back policies.",
        description="Say which task goes where: check, compare, apply and roll back policies.",
        epilog=f"example: lanewise policy apply policy.toml\n\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    below = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_writing(below)
    _add_reading(below)


def _add(below: Commands, name: str, text: str, example: str, run: Run) -> argparse.ArgumentParser:
    parser = below.add_parser(
        name,
        help=text,
        description=text,
        epilog=f"example: {example}\n\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_admin_arguments(parser)

    def guarded(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except AdminError as error:
            print(f"lanewise: {error}", file=sys.stderr)
            return CONFLICT if error.status == 409 else TROUBLE
        except OSError as error:
            print(f"lanewise: {error.filename}: {error.strerror}", file=sys.stderr)
            return TROUBLE

    parser.set_defaults(run=guarded)
    return parser


def _add_writing(below: Commands) -> None:
    apply = _add(
        below,
        "apply",
        "Store a document as a new version and put it in force.",
        "lanewise policy apply policy.toml --comment 'canary for deep work'",
        _apply,
    )
    apply.add_argument("file", help="TOML or JSON; - reads standard input")
    apply.add_argument("--store-only", action="store_true", help="do not put it in force yet")
    activate = _add(
        below,
        "activate",
        "Put a stored version in force; 0 is the policy each gateway was configured with.",
        "lanewise policy activate 7",
        _activate,
    )
    activate.add_argument("version", type=int)
    rollback = _add(
        below,
        "rollback",
        "Put the version in force that was before.",
        "lanewise policy rollback --comment 'too slow'",
        _rollback,
    )
    for parser in (apply, activate, rollback):
        parser.add_argument("--comment", default="", help="why; for the history")
        parser.add_argument(
            "--expect",
            type=int,
            metavar="VERSION",
            help="refuse if another version is in force (default: the one seen when it begins)",
        )
    shadow = _add(
        below,
        "shadow",
        "Let a version decide beside the one in force, counted but without effect; 0 ends that.",
        "lanewise policy shadow 8",
        _shadow,
    )
    shadow.add_argument("version", type=int)
    shadow.add_argument("--comment", default="", help="why; for the history")


def _add_reading(below: Commands) -> None:
    check = _add(
        below,
        "check",
        "Say what is wrong with a document.",
        "lanewise policy check policy.toml --offline",
        _check,
    )
    check.add_argument("file", help="TOML or JSON; - reads standard input")
    check.add_argument(
        "--offline", action="store_true", help="ask no gateway, so tenants are not looked up"
    )
    diff = _add(
        below,
        "diff",
        "Say what a document or a version would change.",
        "lanewise policy diff policy.toml",
        _diff,
    )
    diff.add_argument("what", help="a file, - for standard input, or a version")
    diff.add_argument("--against", type=int, metavar="VERSION", help="(default: what is in force)")
    diff.add_argument("--text", action="store_true", help="the documents' lines instead")
    show = _add(below, "show", "Print a version's document.", "lanewise policy show 7", _show)
    show.add_argument("version", type=int, nargs="?", help="(default: what is in force)")
    _add(below, "list", "List versions and what is in force.", "lanewise policy list", _list)
    history = _add(
        below, "history", "Who changed what, and when.", "lanewise policy history", _history
    )
    history.add_argument("--limit", type=int, default=20)
    explain = _add(
        below,
        "explain",
        "Say which rule takes a prompt, and why each other does not.",
        'lanewise policy explain "Refactor the billing module" --tenant studio --file policy.toml',
        _explain,
    )
    explain.add_argument("prompt", help="- reads standard input")
    explain.add_argument("--tenant", help="(default: the first)")
    explain.add_argument("--model", default="auto")
    explain.add_argument("--effort", help="the request's reasoning effort")
    explain.add_argument("--conversation", help="its prompt_cache_key, for canaries")
    explain.add_argument("--metadata", action="append", default=[], metavar="NAME=VALUE")
    by = explain.add_mutually_exclusive_group()
    by.add_argument("--file", help="decide by this document")
    by.add_argument("--version", type=int, help="decide by this version")


def _read(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    content = Path(path).read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise AdminError(f"{path}: not UTF-8: {error.reason}") from None


def _submission(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"document": _read(arguments.file), "name": arguments.file}


def _print(arguments: argparse.Namespace, answer: Any, text: str) -> None:
    print(json.dumps(answer, indent=2) if arguments.json else text, flush=True)


def _problem(name: str, problem: dict[str, Any]) -> str:
    line = problem["line"]
    position = "" if line is None else f":{line}:{problem['column']}"
    path = f"{problem['path']}: " if problem["path"] else ""
    return f"{name}{position}: {path}{problem['message']}"


def _warn(name: str, warnings: list[dict[str, Any]]) -> None:
    for warning in warnings:
        print(f"warning: {_problem(name, warning)}", file=sys.stderr)


def _check(arguments: argparse.Namespace) -> int:
    submission = _submission(arguments)
    if arguments.offline:
        answer = _check_here(submission)
    else:
        answer = ask_admin(arguments, "POST", "policies", "check", body=submission)
    name = arguments.file
    found = [_problem(name, problem) for problem in answer["problems"]]
    if not arguments.json:
        _warn(name, answer["warnings"])
    _print(arguments, answer, "\n".join(found) if found else f"{name} is a valid policy.")
    return OK if answer["valid"] else NO


def _check_here(submission: dict[str, Any]) -> dict[str, Any]:
    problems: list[dict[str, Any]] = []
    try:
        parse_policy(submission["document"].encode(), submission["name"])
    except PolicyError as error:
        problems = [
            {"message": p.message, "path": p.path, "line": p.line, "column": p.column}
            for p in error.problems
        ]
    return {"valid": not problems, "problems": problems, "warnings": []}


def _apply(arguments: argparse.Namespace) -> int:
    submission = _submission(arguments) | {"comment": arguments.comment}
    stored = ask_admin(arguments, "POST", "policies", body=submission)
    if not arguments.json:
        _warn(arguments.file, stored["warnings"])
    version = stored["version"]
    if arguments.store_only:
        _print(arguments, stored, f"Stored as version {version}; {stored['active']} is in force.")
        return OK
    expected = stored["active"] if arguments.expect is None else arguments.expect
    body = {"expected": expected, "comment": arguments.comment}
    if version == expected:
        _print(arguments, stored, f"Version {version} is in force already, with this content.")
        return OK
    change = ask_admin(arguments, "POST", "policies", str(version), "activate", body=body)
    _print(arguments, stored | change, _changed(change))
    return OK


def _changed(change: dict[str, Any]) -> str:
    return f"Version {change['active']} is in force; before it was {change['before']}."


def _expecting(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"expected": arguments.expect, "comment": arguments.comment}


def _activate(arguments: argparse.Namespace) -> int:
    path = ("policies", str(arguments.version), "activate")
    change = ask_admin(arguments, "POST", *path, body=_expecting(arguments))
    _print(arguments, change, _changed(change))
    return OK


def _rollback(arguments: argparse.Namespace) -> int:
    change = ask_admin(arguments, "POST", "policies", "rollback", body=_expecting(arguments))
    _print(arguments, change, _changed(change))
    return OK


def _shadow(arguments: argparse.Namespace) -> int:
    body = {"version": arguments.version, "comment": arguments.comment}
    change = ask_admin(arguments, "POST", "policies", "shadow", body=body)
    text = f"Version {arguments.version} is the shadow." if arguments.version else "No shadow."
    _print(arguments, change, text)
    return OK


def _diff(arguments: argparse.Namespace) -> int:
    body: dict[str, Any] = {"against": arguments.against}
    if arguments.what.isdecimal():
        body["version"] = int(arguments.what)
    else:
        body |= {"document": _read(arguments.what), "name": arguments.what}
    answer = ask_admin(arguments, "POST", "policies", "diff", body=body)
    lines = [
        f"{change['path']}: {_value(change['from'])} -> {_value(change['to'])}"
        for change in answer["changes"]
    ]
    text = answer["diff"] if arguments.text else "\n".join(lines)
    _print(arguments, answer, text or "No difference.")
    return NO if answer["changes"] else OK


def _value(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "(none)" if value is None else json.dumps(value)


def _show(arguments: argparse.Namespace) -> int:
    version = arguments.version
    if version is None:
        version = ask_admin(arguments, "GET", "policies")["active"]
    answer = ask_admin(arguments, "GET", "policies", str(version))
    _print(arguments, answer, answer["document"].rstrip("\n"))
    return OK


def _list(arguments: argparse.Namespace) -> int:
    answer = ask_admin(arguments, "GET", "policies")
    running = answer["in_force"]["version"]
    marks = {answer["shadow"]: "shadow", running: "in force"}
    lines = [
        f"{row['version']:>5}  {marks.get(row['version'], ''):8}  {_time(row['at'])}  "
        f"{row['author']:16}  {row['label']:16}  {row['comment']}".rstrip()
        for row in answer["versions"]
    ]
    lines.append(f"    0  {'in force' if not running else '':8}  as configured")
    if running != answer["active"]:
        lines.append(
            f"Redis names version {answer['active']}, but this gateway goes on with {running}: it "
            "was emptied, or holds what cannot be read. Apply the document again."
        )
    _print(arguments, answer, "\n".join(lines))
    return OK


def _history(arguments: argparse.Namespace) -> int:
    query = {"limit": str(arguments.limit)}
    answer = ask_admin(arguments, "GET", "policies", "audit", query=query)
    lines = [
        f"{_time(row['at_ms'] / 1e3)}  {row['author']:16}  {row['action']:8}  "
        f"{row['from']} -> {row['to']}  {row['comment']}".rstrip()
        for row in answer
    ]
    _print(arguments, answer, "\n".join(lines) or "No changes yet.")
    return OK


def _time(unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(unix_s))


def _explain(arguments: argparse.Namespace) -> int:
    metadata: dict[str, str] = {}
    for pair in arguments.metadata:
        name, equals, value = pair.partition("=")
        if not equals:
            raise AdminError(f"--metadata {pair!r}: expected NAME=VALUE")
        metadata[name] = value
    body = {
        "prompt": sys.stdin.read() if arguments.prompt == "-" else arguments.prompt,
        "tenant": arguments.tenant,
        "model": arguments.model,
        "metadata": metadata,
        "reasoning_effort": arguments.effort,
        "prompt_cache_key": arguments.conversation,
        "version": arguments.version,
    }
    if arguments.file is not None:
        body |= {"document": _read(arguments.file), "name": arguments.file}
    answer = ask_admin(arguments, "POST", "explain", body=body)
    _print(arguments, answer, "\n".join(answer["text"]))
    return OK if answer["refusal"] is None else NO
