"""Where the words of two engines are one message, it is one message throughout."""

from typing import cast

import msgspec
import pytest

from backends.contract import Delta
from gateway.run.branch import Branch
from gateway.run.continuation import Joint, Said
from tests.unit.gateway.doubles import text


class Told:
    """Stands for the branch, and keeps what it is told."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []

    def push(self, delta: Delta) -> None:
        self.deltas.append(delta)


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize("refuses", [True, False])
def test_a_message_refuses_as_it_began(refused: bool, refuses: bool, index: int) -> None:
    last = msgspec.structs.replace(text("No, "), index=index, refuses=refused)
    told = Told()
    joint = Joint(cast(Branch, told), Said("No, ", 1, last, False))
    for number in (0, 0, 1):
        joint.push(msgspec.structs.replace(text("never. "), index=number, refuses=refuses))
    assert [(delta.index, delta.refuses) for delta in told.deltas] == [
        (index, refused),
        (index, refused),
        (index + 1, refuses),
    ]
