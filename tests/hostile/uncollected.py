"""Runs `lanewise` without garbage collection: on SIGUSR1 it logs how much there is, by type.

python -m tests.hostile.uncollected serve
"""

import gc
import json
import signal
import sys
from collections import Counter

from gateway.cli.main import main

MARK = "garbage: "


def tell(*_: object) -> None:
    """Logs what only the collector would free."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    counted = Counter(type(each).__qualname__ for each in gc.garbage)
    gc.garbage.clear()
    print(MARK + json.dumps(counted), file=sys.stderr, flush=True)


if __name__ == "__main__":
    gc.disable()
    gc.enable = lambda: None
    signal.signal(signal.SIGUSR1, tell)
    sys.exit(main())
