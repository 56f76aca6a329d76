"""Computes the pause between flushes: the more a flush costs, the rarer flushes become.

The driver flushes an engine's tokens, and the gateway flushes buffered text to clients. A flush
costs as much as there are streams, and hardly more when each has more to send. So the pause follows
from the cost of the last flush: all flushes together take at most a share of the time.
"""


def pause(cost: float, *, ratio: float, least: float, most: float) -> float:
    """Returns how long to wait before the next flush: `ratio` times what the last one cost.

    A ratio of 9 gives flushes a tenth of the time. Cost, `least` and `most` are in one unit.
    """
    return min(max(least, cost * ratio), most)
