"""Tests when a stream counts as silent: by its own pace, whatever our count of its tokens is."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.run.branch import TokenTimes
from gateway.run.stall_watch import StallWatch
from tests.unit.gateway.doubles import text

SECOND_US = 1_000_000


@pytest.mark.parametrize(
    ("num_pieces", "num_tokens", "limit_s"),
    [
        (6, 6, 8),  # six words, 0.4 s apart: 20 times that
        (6, 12, 8),  # of two tokens each by our count
        (6, 62, 3),  # many tokens a piece: the least limit
    ],
)
async def test_a_stream_may_be_silent_for_twenty_times_its_own_time_per_token(
    num_pieces: int, num_tokens: int, limit_s: int
) -> None:
    last_us = 2 * SECOND_US
    branch: Any = SimpleNamespace(
        usage=None,
        times=TokenTimes(0, text("a", at_us=last_us)),
        last_at_us=last_us,
        num_pieces=num_pieces,
        num_streamed_tokens=num_tokens,
    )
    branches: Any = {0: branch}
    told_us: list[int] = []
    now_us = last_us

    def stalled(_branch: object, silent_us: int, _late_us: int) -> bool:
        told_us.append(silent_us)
        return True

    watch = StallWatch(branches, lambda: now_us, stalled, lambda _branch: None)
    for tenth in range(1, 200):
        now_us = last_us + tenth * SECOND_US // 10
        watch._look(now_us)
    watch.close()
    assert told_us[0] == limit_s * SECOND_US
