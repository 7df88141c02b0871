"""How long to wait before something is tried again."""


def pause(first: float, most: float, doublings: int) -> float:
    """So many seconds: `first`, doubled so often, but no more than `most`.

    An outage knows no bounds, and a float does: 30 doublings make days of milliseconds, 1024 raise OverflowError.
    """
    return min(most, first * 2.0 ** min(doublings, 30))
