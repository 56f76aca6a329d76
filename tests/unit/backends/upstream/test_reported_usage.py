"""A usage object read at once gives what it gives figure by figure, whatever it is."""

import random
from typing import Any

import msgspec
import pytest

from backends.upstream.answer.reported_usage import (
    ChatFigures,
    ResponsesFigures,
    believed,
    believed_figures,
)

ODD = (-1, 1.5, True, "5", [], {}, 1e300)
DETAILS = ("cached_tokens", "reasoning_tokens", "rejected_prediction_tokens")


def figure(chance: random.Random, odd: float) -> Any:
    """Returns anything that a server may say for a number of tokens."""
    return (
        chance.choice(ODD) if chance.random() < odd else chance.choice((0, 7, 7.0, 1 << 70, None))
    )


@pytest.mark.parametrize("kind", [ChatFigures, ResponsesFigures])
@pytest.mark.parametrize("odd", [0.0, 0.1])
def test_any_usage(kind: type[msgspec.Struct], odd: float) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(300):
        usage = {
            name: {each: figure(chance, odd) for each in DETAILS}
            if name.endswith("details") and chance.random() < 0.8
            else figure(chance, odd)
            for name in kind.__struct_fields__
            if chance.random() < 0.8
        }
        assert believed(usage, kind) == believed_figures(usage, kind)
