"""Tests what the help of each command says, and that only what is called is loaded."""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.main import COMMANDS, main, make_parser


def choices(parser: argparse.ArgumentParser) -> "argparse._SubParsersAction | None":  # type: ignore[type-arg]
    found = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return next(found, None)


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yields all commands below a parser, theirs included."""
    action = choices(parser)
    for command in dict.fromkeys(action.choices.values()) if action is not None else ():
        yield command
        yield from commands(command)


LOADED = {
    command.prog: command
    for name in COMMANDS
    for command in commands(make_parser([name]))
    if command.prog.split()[1] == name
}


def test_the_commands_are_there() -> None:
    assert {f"lanewise {name}" for name in COMMANDS} <= set(LOADED)
    assert {"lanewise engine wafer", "lanewise engine gpu"} <= set(LOADED)


@pytest.mark.parametrize("name", LOADED)
def test_every_command_has_help_with_an_example(name: str) -> None:
    told = LOADED[name].format_help()
    assert f"example: {name}" in " ".join(told.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_command_says(name: str) -> None:
    """All are in the help of each, once, with one text wherever it stands."""
    action = choices(make_parser([name]))
    assert action is not None
    helps = {choice.dest: choice.help for choice in action._choices_actions}
    assert helps == COMMANDS


@pytest.mark.parametrize(
    ("given", "command"),
    [("decisions --last 5", "decisions"), ("keys list --nosuch", "keys list")],
)
def test_what_a_command_does_not_take_is_told_by_its_own_name(
    capsys: pytest.CaptureFixture[str], given: str, command: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(given.split())
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert told.startswith(f"lanewise {command}: error: unrecognized arguments: ")
    assert f"`lanewise {command} --help` has those" in told


@pytest.mark.parametrize("given", [["keys"], ["--help", "keys"], ["unknown"], [], ["--version"]])
def test_every_command_is_named_whatever_is_called(given: list[str]) -> None:
    action = choices(make_parser(given))
    assert action is not None
    assert set(action.choices) == set(COMMANDS)


@pytest.mark.parametrize(
    ("given", "loads"),
    [
        ("--help", ()),
        ("serve", ()),
        ("keys list", ()),
        ("tenants list", ()),
        ("policy list", ("numpy",)),
    ],
)
def test_nothing_heavy_is_loaded_for_a_quick_command(given: str, loads: tuple[str, ...]) -> None:
    heavy = {
        "numpy",
        "litestar",
        "uvicorn",
        "redis",
        "httptools",
        "websockets",
        "prometheus_client",
        "prompt_toolkit",
        "rich",
    }
    check = (
        "import sys; from gateway.cli.main import make_parser; "
        f"make_parser({given.split()!r}); print(*sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert heavy & set(told.stdout.split()) == set(loads)


@pytest.mark.parametrize("command", ["serve --config", "config check"])
def test_a_wrong_configuration_is_told_before_a_server_is_loaded(
    command: str, tmp_path: Path
) -> None:
    path = tmp_path / "lanewise.toml"
    path.write_text("[server]\nprot = 80")
    check = (
        "import sys; from gateway.cli.main import main; "
        f"status = main({[*command.split(), str(path)]!r}); print(status, *sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    status, *modules = told.stdout.split()
    assert status == "2"
    assert f"{path}:2:1: server.prot: unknown field 'prot'; did you mean 'port'?" in told.stderr
    loaded = {"litestar", "uvicorn", "redis", "prometheus_client", "numpy"} & set(modules)
    # `config check` looks at the policy, too, which knows the classifier.
    assert loaded <= ({"numpy"} if command == "config check" else set())


def test_an_application_does_not_load_what_it_has_no_use_for() -> None:
    check = (
        "import sys; from types import SimpleNamespace as Made; "
        "from gateway.process.app import make_app; "
        "make_app(Made(config=Made(server=Made(max_message_bytes=1)))); print(*sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert not {"pydantic", "attr", "attrs", "openai"} & set(told.stdout.split())


def test_an_application_uses_nothing_that_is_deprecated() -> None:
    check = (
        "import warnings; from types import SimpleNamespace as Made; "
        "from gateway.process.app import make_app; warnings.simplefilter('error'); "
        "make_app(Made(config=Made(server=Made(max_message_bytes=1))))"
    )
    told = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr


def test_bytes_that_are_no_text_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["route", "caf\udce9"]) == 2  # as Python reads an argument in Latin-1
    assert "an argument is not UTF-8 text: 'caf\\udce9'" in capsys.readouterr().err


@pytest.mark.parametrize("days", ["0", "-5", "41", "99999999", "9999999999999999"])
def test_days_that_are_not_kept_are_refused(days: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "show", "--days", days]) == 2
    assert f"--days: expected 1 to 40, got {days}" in capsys.readouterr().err
