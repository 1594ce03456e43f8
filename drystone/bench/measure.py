"""Figures shared by the benchmarks: medians, percentiles, CPU seconds of processes."""

from collections.abc import Mapping, Sequence
from statistics import median

import psutil


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed (nearest rank)."""
    assert values
    assert 0 < percent <= 100
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[int(rank) - 1]


def spread(values: Sequence[float]) -> dict[str, float]:
    """p50 and p99, rounded to a tenth."""
    return {"p50": round(percentile(values, 50), 1), "p99": round(percentile(values, 99), 1)}


def middle(values: Sequence[float], digits: int = 2) -> float:
    """The median, rounded."""
    return round(median(values), digits)


def cpu_seconds(pids: Mapping[str, int]) -> dict[str, float]:
    """CPU used so far by each process (by role), its reaped children not counted."""
    used = {}
    for role, pid in pids.items():
        times = psutil.Process(pid).cpu_times()
        used[role] = times.user + times.system
    return used
