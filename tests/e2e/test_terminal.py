"""Tests `lanewise chat` as a person and as a pipe meets it."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.gateway_process import LANEWISE, GatewayProcess
from tests.e2e.terminal_screen import TIMEOUT_S, Screen


def chat(
    gateway: GatewayProcess, *arguments: str, text: str = ""
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(LANEWISE), "chat", "--url", gateway.url, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_one_prompt_gives_one_answer_and_a_summary(gateway: GatewayProcess) -> None:
    told = chat(
        gateway, "--model", "lanewise-fast", "The code word is lynx-2. What is the code word?"
    )
    assert told.returncode == 0, told.stderr
    assert "lynx-2" in told.stdout
    assert "Fast engine (wafer): you asked for model lanewise-fast." in told.stderr
    assert re.search(r"\[\d+ tokens · first words after [\d,]+ ms", told.stderr)
    assert "\x1b" not in told.stdout + told.stderr, "no colour where there is no terminal"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "The code word is lynx-3. What is the code word?"),
        (("-",), "The code word is lynx-3. What is the code word?"),
        (("What is the code word?",), "The code word is lynx-3."),
    ],
)
def test_what_is_piped_in_is_asked_too(
    gateway: GatewayProcess, arguments: tuple[str, ...], text: str
) -> None:
    told = chat(gateway, *arguments, text=f"{text}\n")
    assert told.returncode == 0, told.stderr
    assert "lynx-3" in told.stdout


def test_each_engine_by_itself(gateway: GatewayProcess) -> None:
    told = chat(gateway, "--route", "both", "Reply with exactly lynx-5.")
    assert told.returncode == 0, told.stderr
    assert told.stdout == "## fast\n\nlynx-5\n## deep\n\nlynx-5\n"


def test_an_address_needs_no_scheme(gateway: GatewayProcess) -> None:
    told = chat(gateway, "--url", f"127.0.0.1:{gateway.port}", "Reply with exactly lynx-6.")
    assert told.returncode == 0, told.stderr
    assert told.stdout == "lynx-6\n"


@pytest.mark.parametrize(
    ("arguments", "complaint", "status"),
    [
        (("--key", "sk-wrong", "Hi."), "Incorrect API key", 1),
        (("--url", "http://127.0.0.1:9", "Hi."), "No gateway at .*lanewise serve", 1),
        (("--model", "gpt-0", "Hi."), "gpt-0", 1),
        (("--url", "ftp://x", "Hi."), "--url 'ftp://x': expected HOST:PORT", 2),
        ((), "a dialogue needs a terminal", 2),
        ((" ",), "expected a prompt", 2),
    ],
)
def test_failures_are_told_in_words(
    gateway: GatewayProcess, arguments: tuple[str, ...], complaint: str, status: int
) -> None:
    told = chat(gateway, *arguments)
    assert told.returncode == status
    assert re.search(complaint, told.stderr), told.stderr
    assert "Traceback" not in told.stderr


def test_an_interrupt_keeps_what_there_is(gateway: GatewayProcess) -> None:
    asked = [str(LANEWISE), "chat", "--url", gateway.url, "--route", "deep"]
    process = subprocess.Popen(
        [*asked, "Write a guide of 40,000 tokens."],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 1)
        process.send_signal(signal.SIGINT)
        told, summary = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert first + told
    assert b"cancelled]" in summary
    assert b"Traceback" not in summary


@pytest.fixture
def screen(gateway: GatewayProcess) -> Iterator[Screen]:
    screen = Screen("chat", "--url", gateway.url)
    yield screen
    screen.close()


def test_a_dialogue(screen: Screen) -> None:
    screen.wait_for(r"> *\n(.*\n)* auto +/fast")  # the prompt, and the status below it
    screen.type("/fast\r")
    screen.wait_for("auto /fast")
    screen.type("The code word is lynx-4. What is the code word?\r")
    screen.wait_for(r"> The code word is lynx-4\. What is the code word\?\n.*lynx-4")
    screen.wait_for(
        r"\[\d+ tokens · first words .* Fast engine \(wafer\): you asked for route fast"
    )
    screen.type("/deep\r")
    screen.wait_for("auto /deep")
    screen.type("Write a guide of 4,000 tokens.\r")
    screen.wait_for(r"[\d,]+ tokens · [\d,]+ tokens/s · Deep engine")
    screen.type("What is the code word?\r")  # while it streams
    screen.wait_for(r"\(redirected: What is the code word\?\)\n\n.*lynx-4")
    screen.wait_for(r"\[\d+ tokens .*Deep engine \(gpu\)")
    screen.type("Write a guide of 4,000 tokens.\r")
    screen.wait_for(r"[\d,]+ tokens · [\d,]+ tokens/s · Deep engine")
    screen.type("\x03")
    screen.wait_for(r"cancelled · Deep engine.*\n(.*\n)*> *\n(.*\n)* auto +/deep")
    screen.type("\x03")  # at the prompt
    assert screen.wait_for_end() == 0


def test_both_engines_beside_each_other(gateway: GatewayProcess) -> None:
    screen = Screen("chat", "--url", gateway.url, "--route", "both", columns=140)
    try:
        screen.wait_for(r"auto /both")
        screen.type("Reply with exactly lynx-7.\r")
        screen.wait_for(r"fast +│ deep\n *lynx-7 +│ lynx-7\n")
        screen.wait_for(r"\[deep · .*\]\n")
        screen.type("/quit\r")
        assert screen.wait_for_end() == 0
    finally:
        screen.close()
