"""Spaces flushes of what is cheaper done together: the more a flush costs, the rarer it becomes.

The driver flushes an engine's tokens, and the gateway the text that gathers for clients. A flush
costs as much as there are streams, and hardly more when each has more to say. So the pause after a
flush follows from its cost: all flushes together take at most a share of the time.
"""


def pause(cost: float, *, ratio: float, least: float, most: float) -> float:
    """Return how long to wait before the next flush; all in one unit.

    Args:
        cost: What the last flush took.
        ratio: The pause is so many times the cost: 9 gives flushes a tenth of the time.
        least: The shortest pause, while flushes are cheap.
        most: The longest pause, however much they cost.
    """
    return min(max(least, cost * ratio), most)
