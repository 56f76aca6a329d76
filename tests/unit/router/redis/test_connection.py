"""Commands are packed as hiredis packs them."""

import hiredis
import pytest

from router.redis.connection import pack


@pytest.mark.parametrize(
    "words",
    [
        ("PING",),
        ("EVALSHA", "0a" * 20, 3, "lw1:{dev}:lease", "reserve", 0, -1, 30_000, "resp_1|-1|7"),
        ("SET", "", "Größe\r\n", 10**18, -(10**9)),
        (1, "1", 0, "0"),
    ],
)
def test_pack(words: tuple[str | int, ...]) -> None:
    for _ in range(2):  # what is kept packed is the same
        assert pack(words) == hiredis.pack_command(words)  # type: ignore[arg-type]
