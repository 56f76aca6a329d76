"""Runs a command of `router.training` on a twentieth of the prompts that it writes and wraps.

    python -m tests.unit.router.training.quick_training COMMAND ARGUMENTS...

Which prompts they are changes nothing of how a training goes; all of them take half a minute.
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from router.training import fit, handovers, prompts

WRITTEN = ("written_prompts", "security_prompts", "everyday_prompts", "paste_asks")
MADE_OF_THEM = (
    "NUM_WRAPPED",
    "NUM_PASTED",
    "PER_ASK",
)  # how many more: most of what a training reads
EVERY = 20


def main(command: str, arguments: Sequence[str]) -> int:
    """Runs it; returns its exit status."""
    for module in (fit, handovers):
        for name in WRITTEN:
            _sample(module, name)
    _sample(handovers, "_lines")
    for number in MADE_OF_THEM:
        setattr(prompts, number, max(1, getattr(prompts, number) // EVERY))
    status: int = importlib.import_module(command).main(arguments)
    return status


def _sample(module: ModuleType, name: str) -> None:
    written: Callable[[Any], Iterable[Any]] = getattr(module, name)
    setattr(module, name, lambda chance: [*written(chance)][::EVERY])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
