"""Makes one back-test in a process: reads a request from standard input, prints the answer.

This is an edge.
"""

import os
import pickle
import sys

from gateway.backtest.inquiry import InquiryError

NICENESS = 10  # streams go first


def main() -> None:
    """Answers one request."""
    os.nice(NICENESS)
    function, arguments = pickle.load(sys.stdin.buffer)
    try:
        found = function(*arguments)
    except InquiryError as error:
        found = error
    sys.stdout.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    main()
