"""Utilisation over time as a picture. The only file that draws; matplotlib is an extra."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drystone.simulate.accounts import MEASURED, Accounts
from drystone.simulate.history import History
from drystone.simulate.stranding import FRAGMENTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MS_PER_HOUR = 3_600_000
DOTS_PER_INCH = 120
SUFFIXES = (".png", ".svg", ".pdf")


class NoPlotError(Exception):
    """matplotlib is not installed, or draws no such picture."""


def can_plot(path: Path) -> None:
    """NoPlotError now rather than after a long run."""
    if path.suffix.lower() not in SUFFIXES:
        raise NoPlotError(
            f"--plot: {path} must end in {', '.join(SUFFIXES)}, which say what to draw"
        )
    if find_spec("matplotlib") is None:
        raise NoPlotError("--plot needs matplotlib: pip install 'drystone[plot]'")


def plot(path: Path, runs: Mapping[str, History], *, timed: bool) -> None:
    """One panel per run (by policy): shares in use, what is stranded, how many wait."""
    can_plot(path)
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(10, 1 + 3.5 * len(runs)), layout="constrained")
    panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (name, history) in zip(panels, runs.items(), strict=True):
        _draw(panel, history, timed=timed)
        panel.set_title(name)
    panels[-1].set_xlabel("hours" if timed else "tasks arrived")
    # Without a fixed name of the software the bytes would differ between releases of it.
    metadata: dict[str, Any] | None = {"Software": None} if path.suffix == ".png" else None
    figure.savefig(path, dpi=DOTS_PER_INCH, metadata=metadata)


def _draw(panel: "Axes", history: History, *, timed: bool) -> None:
    accounts: Accounts = history.accounts
    unit = MS_PER_HOUR if timed else 1
    along = [point.at / unit for point in history.points]
    for column, name in enumerate(MEASURED):
        capacity = accounts.capacity[column]
        if capacity:
            shares = [100 * point.used[column] / capacity for point in history.points]
            panel.step(along, shares, where="post", label=f"{name} in use")
    looked = [look.at / unit for look in history.looks]
    for name in (*MEASURED, FRAGMENTED):
        lost = [100 * look.stranded.get(name, 0.0) for look in history.looks]
        known = any(name in look.stranded for look in history.looks)
        if known and len(lost) > 1:
            panel.plot(looked, lost, linestyle=":", label=f"{name} stranded")
    panel.set_ylabel("% of capacity")
    panel.set_ylim(0, 105)
    if timed:
        behind = panel.twinx()
        waiting = [point.waiting for point in history.points]
        behind.fill_between(along, waiting, step="post", alpha=0.2, color="grey")
        behind.set_ylabel("tasks that wait")
        behind.set_ylim(0, max(1, 1.05 * max(waiting)))
    panel.legend(loc="upper left", fontsize="small")
