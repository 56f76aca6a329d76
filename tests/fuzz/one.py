"""Fuzzes one target until its time is over, or a finding ends it: `python -m tests.fuzz.one`.

atheris follows which code each input reaches. It has wheels for few platforms: elsewhere hypothesis
makes the inputs, from the same seeds and without that knowledge. Both imports stand in branches, as
atheris changes what is imported under its eyes.
"""

import argparse
import contextlib
import importlib.util
import io
import random
import sys
import tempfile
import time
from pathlib import Path

MAX_BYTES = 4_096
EXAMPLES = 500  # of hypothesis at once; then the clock is asked
INPUT_TIMEOUT_S = 10  # one input that takes longer is a finding


def with_atheris(name: str, seconds: float) -> None:
    """Fuzzes with coverage; the process ends in it, with 0 if there was no finding."""
    import atheris

    names = ["backends", "gateway", "router"]
    # It would name each module there.
    with contextlib.redirect_stderr(io.StringIO()), atheris.instrument_imports(include=names):
        from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="lw-fuzz-") as folder:
        for number, seed in enumerate(target.seeds):
            (Path(folder) / f"seed-{number}").write_bytes(seed)
        options = [f"-max_total_time={int(seconds)}", f"-max_len={MAX_BYTES}", "-rss_limit_mb=2048"]
        options += [f"-timeout={INPUT_TIMEOUT_S}", "-print_final_stats=1", "-verbosity=0"]
        atheris.Setup([sys.argv[0], *options, folder], target.run)
        atheris.Fuzz()


def with_hypothesis(name: str, seconds: float) -> None:
    """Fuzzes with inputs that hypothesis makes and shrinks; raises the finding."""
    import hypothesis
    from hypothesis import strategies as st

    from tests.fuzz.targets import TARGETS
    from tests.hostile.mutations import changed_bytes

    target = TARGETS[name]
    seeds = st.sampled_from(target.seeds)
    inputs = st.binary(max_size=MAX_BYTES) | st.builds(
        changed_bytes, st.randoms(use_true_random=False), seeds, seeds
    )
    settings = hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    until_s, first, number = time.monotonic() + seconds, random.randrange(1 << 32), 0
    while time.monotonic() < until_s:
        run = hypothesis.seed(first + number)(settings(hypothesis.given(inputs)(target.run)))
        run()
        number += 1
    print(f"{number * EXAMPLES} inputs from seed {first}")


def main() -> None:
    """Fuzzes by what is installed."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("name")
    arguments.add_argument("seconds", type=float)
    arguments.add_argument("--hypothesis", action="store_true", help="although atheris is here")
    asked = arguments.parse_args()
    if importlib.util.find_spec("atheris") is None or asked.hypothesis:
        print("without atheris: hypothesis makes the inputs, blind to what they reach")
        with_hypothesis(asked.name, asked.seconds)
    else:
        with_atheris(asked.name, asked.seconds)


if __name__ == "__main__":
    main()
