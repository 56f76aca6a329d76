"""A log that nobody reads stops nobody, and says afterwards what is missing."""

import os
import threading

from gateway.logs.writer import MAX_QUEUED, LogWriter

LONG = b"x" * 1_000


def told(num_dropped: int) -> bytes:
    return b"missing %d" % num_dropped


def test_lines_come_in_order() -> None:
    reader, writer = os.pipe()
    log = LogWriter(writer, told)
    for number in range(100):
        log.write(lambda number=number: b"line %d" % number)
    log.close()
    os.close(writer)
    with open(reader, "rb") as file:
        assert file.read().splitlines() == [b"line %d" % number for number in range(100)]


def test_what_may_wait_goes_with_what_may_not() -> None:
    reader, writer = os.pipe()
    log = LogWriter(writer, told)
    log.write(lambda: b"a task", at_once=False)
    log.write(lambda: b"a warning")
    assert os.read(reader, 64).startswith(b"a task")
    log.close()
    os.close(writer)
    os.close(reader)


def test_a_blocked_pipe_blocks_no_one() -> None:
    reader, writer = os.pipe()
    log = LogWriter(writer, told)
    num_lines = MAX_QUEUED + 2_000
    for _ in range(num_lines):
        log.write(lambda: LONG)
    found: list[bytes] = []
    reading = threading.Thread(target=lambda: found.extend(_all_of(reader)))
    reading.start()
    log.close()
    os.close(writer)
    reading.join()
    # Mostly one; another where the writer's thread took lines while more were written.
    gaps = [line for line in found if line != LONG]
    num_missing = sum(int(gap.removeprefix(b"missing ")) for gap in gaps)
    assert num_missing > 0
    assert len(found) - len(gaps) + num_missing == num_lines


def _all_of(descriptor: int) -> list[bytes]:
    with open(descriptor, "rb") as file:
        return file.read().splitlines()


def test_a_line_that_cannot_be_made_takes_no_other_with_it() -> None:
    reader, writer = os.pipe()
    log = LogWriter(writer, told)
    log.write(lambda: str(1 / 0).encode())
    log.write(lambda: b"after")
    log.close()
    os.close(writer)
    with open(reader, "rb") as file:
        first, second = file.read().splitlines()
    assert b"division by zero" in first
    assert second == b"after"


def test_a_closed_pipe_is_no_fault() -> None:
    reader, writer = os.pipe()
    log = LogWriter(writer, told)
    os.close(reader)
    log.write(lambda: b"lost")
    log.close()
    os.close(writer)
