"""How long to gather before the next round or delivery. Arithmetic alone: it knows no clock.

A round or delivery of many is followed by a longer pause: while more arrive than the limit below,
fewer and larger ones cost the server and the workers less; at less the pause dwindles to nothing.
"""

GATHERED_PER_S_MAX = 33


def gather_s(count: int, most_s: float) -> float:
    """Seconds from one that held `count` to the next; `most_s` at most."""
    return min(most_s, count / GATHERED_PER_S_MAX)
