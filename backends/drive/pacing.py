"""How often to do what is cheaper done together: rounds move apart as they cost more.

An engine's tokens are handed out in rounds, and so is the text that gathers for clients. A round
costs as much as there are streams, hardly more when each has more to say. So the pause behind a
round follows from what the round took: all rounds together take at most a share of the time.
"""


def pause(cost: float, *, ratio: float, least: float, most: float) -> float:
    """Until the next round; all in one unit.

    Args:
        cost: What the last round took.
        ratio: The pause is so many times the cost: 9 gives rounds a tenth of the time.
        least: While rounds are cheap.
        most: However dear they are.
    """
    return min(max(least, cost * ratio), most)
