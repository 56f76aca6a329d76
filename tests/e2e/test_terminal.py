"""`lanewise chat` as a person and as a pipe meets it."""

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator

import pyte
import pytest

from tests.e2e.gateway_process import LANEWISE, GatewayProcess

TIMEOUT_S = 60.0  # bounds a hang
COLUMNS, LINES = 100, 40


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
    assert re.search(r"\[fast · wafer · \d+ tokens · first after [\d,]+ ms", told.stderr)


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_a_pipe_is_a_prompt(gateway: GatewayProcess, arguments: tuple[str, ...]) -> None:
    told = chat(gateway, *arguments, text="The code word is lynx-3. What is the code word?\n")
    assert told.returncode == 0, told.stderr
    assert "lynx-3" in told.stdout


def test_failures_are_told_in_words(gateway: GatewayProcess) -> None:
    for arguments, complaint in (
        (("--key", "sk-wrong", "Hi."), "401"),
        (("--url", "http://127.0.0.1:9", "Hi."), "make run"),
        (("--model", "gpt-0", "Hi."), "gpt-0"),
    ):
        told = chat(gateway, *arguments)
        assert told.returncode == 1
        assert complaint in told.stderr
        assert "Traceback" not in told.stderr


class Screen:
    """A terminal with `lanewise chat` on it: type, and wait for what it shows."""

    def __init__(self, gateway: GatewayProcess, *arguments: str) -> None:
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self._screen.write_process_input = self.type
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [str(LANEWISE), "chat", "--url", gateway.url, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": str(COLUMNS), "LINES": str(LINES)},
            start_new_session=True,
        )
        os.close(slave)

    @property
    def text(self) -> str:
        """What it shows now."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, pattern: str) -> None:
        """Until it shows that."""
        deadline = time.monotonic() + TIMEOUT_S
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.text}"
            if select.select([self._master], [], [], 0.2)[0]:
                self._stream.feed(os.read(self._master, 65536))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def screen(gateway: GatewayProcess) -> Iterator[Screen]:
    screen = Screen(gateway, "--model", "auto")
    yield screen
    screen.close()


def test_a_dialogue(screen: Screen) -> None:
    screen.wait_for(r"> *\n(.*\n)* auto +/fast")  # the prompt, and the toolbar below it
    screen.type("/fast\r")
    screen.wait_for("auto /fast")
    screen.type("The code word is lynx-4. What is the code word?\r")
    screen.wait_for(r"> The code word is lynx-4\. What is the code word\?\n.*lynx-4")
    screen.wait_for(r"\[fast · wafer · \d+ tokens")
    screen.type("/deep\r")
    screen.wait_for("auto /deep")
    screen.type("Write a guide of 4,000 tokens.\r")
    screen.wait_for(r"deep +[\d,]+ tokens +[\d,]+ tokens/s")
    screen.type("What is the code word?\r")  # while it streams
    screen.wait_for(r"\(redirected: What is the code word\?\)\n.*lynx-4")
    screen.wait_for(r"\[deep · gpu · \d+ tokens")
    screen.type("Write a guide of 4,000 tokens.\r")
    screen.wait_for(r"deep +[\d,]+ tokens +[\d,]+ tokens/s")
    screen.type("\x03")
    screen.wait_for("incomplete: cancelled")
    screen.type("/quit\r")
    assert screen.process.wait(TIMEOUT_S) == 0
