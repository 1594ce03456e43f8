"""One run in figures: the object that `--json` prints, and the table for people."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from drystone.simulate.accounts import GPU, MEASURED, Accounts
from drystone.simulate.history import History
from drystone.simulate.records import Outcome
from drystone.simulate.replay import Result
from drystone.simulate.stranding import FRAGMENTED

DIGITS = 4
WAITS = (50, 90, 99)


def figures(
    result: Result, accounts: Accounts, *, rounds: int, wall_s: float, given: Mapping[str, Any]
) -> dict[str, Any]:
    """All that `--json` prints. Shares are of the whole capacity, from 0 to 1; what the fleet has
    none of is null or left out. `given` comes first, as it is."""
    counts = Counter(line.outcome for line in result.placements)
    placed = len(result.placements) - counts[Outcome.UNPLACED] - counts[Outcome.IMPOSSIBLE]
    history = result.history
    at_end = _shares(accounts, accounts.used)
    mean = history.mean_used()
    stranded_end = dict(history.looks[-1].stranded) if history.looks else {}
    return {
        **given,
        "tasks": len(result.placements),
        "outcomes": {outcome.value: counts[outcome] for outcome in Outcome},
        "placed": placed,
        "placed_share": _rounded(placed / len(result.placements)) if result.placements else None,
        "rounds": rounds,
        "wall_s": round(wall_s, 3),
        "placements_per_s": round(placed / wall_s) if wall_s else None,
        "utilisation": {
            "end": at_end,
            "mean": None if mean is None else _shares(accounts, mean),
        },
        "gpu_allocation_ratio": at_end.get(MEASURED[GPU]),
        "waiting_s": _waits(result.waited_ms),
        "preemptions": counts[Outcome.PREEMPTED],
        "fragmentation": {
            "end": _share_of(stranded_end, FRAGMENTED),
            "mean": _mean_look(history, FRAGMENTED),
        },
        "stranded": {
            "end": {
                name: _rounded(stranded_end[name]) for name in MEASURED if name in stranded_end
            },
            "mean": {name: _mean_look(history, name) for name in MEASURED if name in stranded_end},
        },
    }


def table(found: Sequence[Mapping[str, Any]]) -> Table:
    """Runs side by side, a column each."""
    shown = Table("", *(str(one["policy"]) for one in found))
    lines = [_lines(one) for one in found]
    for name in lines[0]:
        shown.add_row(name, *(line.get(name, "") for line in lines))
    return shown


def _lines(one: Mapping[str, Any]) -> dict[str, str]:
    lines = {
        "tasks placed": f"{one['placed']} of {one['tasks']} ({_percent(one['placed_share'])})",
        **{name: str(count) for name, count in one["outcomes"].items()},
        "placements per second": str(one["placements_per_s"]),
        "rounds": str(one["rounds"]),
    }
    mean = one["utilisation"]["mean"] or {}
    for name, share in one["utilisation"]["end"].items():
        on_average = f", mean {_percent(mean[name])}" if name in mean else ""
        lines[f"in use: {name}"] = _percent(share) + on_average
    for name, share in one["stranded"]["end"].items():
        on_average = f", mean {_percent(one['stranded']['mean'][name])}" if mean else ""
        lines[f"stranded: {name}"] = _percent(share) + on_average
    if one["fragmentation"]["end"] is not None:
        lines["GPU fragments"] = _percent(one["fragmentation"]["end"])
    if one["waiting_s"] is not None:
        waits = one["waiting_s"]
        lines["waited, s"] = ", ".join(f"{name} {value:g}" for name, value in waits.items())
    if "check" in one:
        lines["violations found"] = str(one["check"]["violations"])
    return lines


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def _rounded(share: float) -> float:
    return round(share, DIGITS)


def _shares(accounts: Accounts, used: Sequence[float]) -> dict[str, float]:
    return {
        name: _rounded(used[column] / accounts.capacity[column])
        for column, name in enumerate(MEASURED)
        if accounts.capacity[column]
    }


def _share_of(look: Mapping[str, float], name: str) -> float | None:
    return _rounded(look[name]) if name in look else None


def _mean_look(history: History, name: str) -> float | None:
    """Over the looks, which lie evenly over the run."""
    seen = [look.stranded[name] for look in history.looks if name in look.stranded]
    return _rounded(sum(seen) / len(seen)) if seen else None


def _waits(waited_ms: list[int] | None) -> dict[str, float] | None:
    """Nearest-rank percentiles of those who were placed, in seconds."""
    if not waited_ms:
        return None
    found = {f"p{percent}": percentile(waited_ms, percent) / 1_000 for percent in WAITS}
    return {**found, "max": max(waited_ms) / 1_000}


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that at least `percent` of them do not exceed (nearest rank)."""
    return sorted(values)[-(-len(values) * percent // 100) - 1]
