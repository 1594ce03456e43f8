"""How long to gather before the next round or delivery. Arithmetic alone: it knows no clock.

One that held many is followed by a longer pause: while many arrive, fewer and larger ones cost the
server and the workers less. At few, pauses dwindle to nothing, also after a moment of standstill.
"""

AT_ONCE = 3
"""So many are followed by no pause: they come together by chance, too."""
GATHERED_PER_S = 20


def gather_s(count: int, most_s: float) -> float:
    """Seconds from one that held `count` to the next; `most_s` at most."""
    return min(most_s, max(0, count - AT_ONCE) / GATHERED_PER_S)
