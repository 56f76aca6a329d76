"""Tests which lines the log has, and how it writes them."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.config.sections import LogsConfig
from gateway.logs.set_up import escaped, set_up_logging
from gateway.logs.task_line import TaskLine


@pytest.mark.parametrize(
    ("message", "error", "is_logged"),
    [
        ("Exception in ASGI application\n", ZeroDivisionError(), True),
        ("Exception in ASGI application\n", ConnectionResetError(), False),
        ("Exception in ASGI application\n", asyncio.CancelledError(), False),
        ("Invalid UTF-8 sequence received from client.", ValueError(), False),
        ("Invalid HTTP request received.", None, False),
    ],
)
def test_uvicorn_logs_what_escaped_and_no_malformed_frames(
    message: str, error: BaseException | None, is_logged: bool
) -> None:
    given = None if error is None else (type(error), error, None)
    record = logging.getLogger("uvicorn.error").makeRecord(
        "uvicorn.error", logging.ERROR, "f", 1, message, (), given
    )
    assert escaped(record) is is_logged


@contextmanager
def logging_to_pipe(config: LogsConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Sets the log up on a pipe; its lines are in the list afterwards."""
    reader, writer = os.pipe()
    root = logging.getLogger()
    before = list(root.handlers)
    lines: list[str] = []
    with open(writer, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        try:
            yield lines
        finally:
            for handler in [each for each in root.handlers if each not in before]:
                root.removeHandler(handler)
                handler.close()
    with open(reader) as file:
        lines += file.read().splitlines()


def test_json_has_a_line_for_each_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    config = LogsConfig(format="json")
    with logging_to_pipe(config, monkeypatch) as lines:
        take = set_up_logging(config)
        assert take is not None
        take(TaskLine(at=1.0, id="resp_1", tenant="t", outcome="ok", duration_ms=2.0))
        logger = logging.getLogger("lanewise.test")
        for _ in range(5):
            logger.warning("Redis is away: %s", "refused")
        logger.error("twice")
        logger.error("twice")
        for number in range(5):
            logger.info("response %d could not be stored", number, extra={"once": "store"})
        try:
            _ = 1 / 0
        except ZeroDivisionError:
            logger.exception("it broke")
    found = [json.loads(line) for line in lines]
    assert [line["event"] for line in found] == ["task", *["log"] * 5]
    assert [line.get("message") for line in found[1:5]] == [
        "Redis is away: refused",
        "twice",
        "twice",
        "response 0 could not be stored",
    ]
    assert "ZeroDivisionError" in found[-1]["exception"]


def test_text_and_no_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    config = LogsConfig(format="text", tasks=False)
    with logging_to_pipe(config, monkeypatch) as lines:
        assert set_up_logging(config) is None
        logging.getLogger("lanewise.test").warning("words")
    assert len(lines) == 1
    assert lines[0].endswith("WARNING words")


def test_a_line_of_text_is_one_line_and_commands_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = LogsConfig(format="text")
    forged = "bad\r\n2026-01-01 INFO task forged\u2028\x1b[2J\x9b31m ok: größer"
    with logging_to_pipe(config, monkeypatch) as lines:
        set_up_logging(config)
        logger = logging.getLogger("lanewise.test")
        logger.warning("upstream evil failed: %s", forged)
        try:
            raise ValueError(forged)
        except ValueError:
            logger.exception("it broke")
    words = r"bad\r\n2026-01-01 INFO task forged\u2028\x1b[2J\x9b31m ok: größer"
    assert lines[0].endswith(f"WARNING upstream evil failed: {words}")
    assert all(line.isprintable() for line in lines)
    assert [line for line in lines if line.startswith("2026-01-01")] == []
