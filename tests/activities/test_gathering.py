"""The pause between rounds and between deliveries, as loads come and go."""

import pytest

from activities.gathering import GATHERED_PER_S_MAX, gather_s

MOST_S = 0.5


def after(rate: float, pause_s: float, times: int) -> float:
    """The pause after so many, each of what arrived during the one before."""
    for _ in range(times):
        pause_s = gather_s(int(rate * pause_s), MOST_S)
    return pause_s


@pytest.mark.parametrize("rate", [1, 25, GATHERED_PER_S_MAX - 1])
def test_a_load_that_can_be_met_one_by_one_is_not_held_up_for_long(rate: float) -> None:
    assert after(rate, MOST_S, times=30) == 0


@pytest.mark.parametrize("rate", [2 * GATHERED_PER_S_MAX, 100_000])
def test_a_heavy_load_is_gathered_up_to_the_bound(rate: float) -> None:
    assert after(rate, pause_s=0.1, times=30) == MOST_S
