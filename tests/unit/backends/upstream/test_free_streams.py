"""The stream that is found is the one that a look at all of them would choose."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from backends.upstream.chain import Chain
from backends.upstream.free_streams import FreeStreams

LINES = ((1, 2, 3, 4, 5), (1, 2, 8, 9), (6, 7))  # digests of conversations


def looked_for(free: dict[Any, None], turn: Any) -> Any:
    """Returns the plain twin."""

    def fitness(stream: Any) -> tuple[int, int]:
        if stream.chain is None:
            return 1, list(free).index(stream)
        if turn.follows(stream.chain):
            return 2 + len(stream.chain.digests), list(free).index(stream)
        return 0, -list(free).index(stream)

    return max((s for s in free if s.socket.usable), key=fitness, default=None)


def turn_of(salt: int, digests: tuple[int, ...]) -> Any:
    def follows(chain: Chain) -> bool:
        is_longer = len(chain.digests) < len(digests)
        is_same = digests[: len(chain.digests)] == chain.digests
        return chain.salt == salt and is_longer and is_same

    keys = [(salt, length, digests[length - 1]) for length in range(len(digests) - 1, 0, -1)]
    return SimpleNamespace(follows=follows, followed_keys=lambda: iter(keys))


@pytest.mark.parametrize("seed", range(20))
def test_the_best_is_found(seed: int) -> None:
    chance = random.Random(seed)
    streams = FreeStreams()
    free: dict[Any, None] = {}
    for _ in range(300):
        line = chance.choice(LINES)
        turn = turn_of(chance.randrange(2), line[: chance.randint(1, len(line))])
        found = streams.best(turn)
        assert found is looked_for(free, turn), seed
        if found is not None and chance.random() < 0.5:
            streams.remove(found)
            del free[found]
        if chance.random() < 0.5:
            chain = None
            if chance.random() < 0.8:
                digests = line[: chance.randint(1, len(line))]
                chain = Chain("r", chance.randrange(2), digests)
            socket = SimpleNamespace(usable=chance.random() < 0.9)
            added: Any = type("Stream", (), {"chain": chain, "socket": socket})()
            streams.add(added)
            free[added] = None
        if free and chance.random() < 0.1:
            chance.choice(list(free)).socket.usable = False
    for stream in list(free):
        streams.remove(stream)
        streams.remove(stream)  # harmless
    assert streams.best(turn_of(0, LINES[0])) is None
