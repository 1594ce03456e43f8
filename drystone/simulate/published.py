"""The set-up in which Weng et al. (USENIX ATC 2023) compare placement policies on the openb lists.

The machines that have GPUs; a list lengthened by copies of entries drawn at random (or cut at
random) until the GPUs asked for reach a share of the fleet's, then shuffled; tasks come one by one
and never leave; what does not fit is skipped. The draws are our own generator's: the shuffles are
not the publishers', only the procedure is.
"""

import csv
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from drystone.simulate.accounts import GPU
from drystone.simulate.cells import InputError
from drystone.simulate.engine import BATCH_MAX, DEFAULT_POLICY_NAME, POLICY_NAMES
from drystone.simulate.formats import OPENB, read_machines, read_tasks
from drystone.simulate.records import DEVICE_MILLI, MachineRow, TaskRow
from drystone.simulate.run import Setting, checked, simulate

PERCENT = 130
FIRST_SHUFFLE, SHUFFLES = 42, 10
DIGITS = 3

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def with_gpus(machines: Sequence[MachineRow]) -> list[MachineRow]:
    """The fleet of the set-up."""
    return [one for one in machines if one.capacity.gpu]


def stretched(
    tasks: Sequence[TaskRow], machines: Sequence[MachineRow], percent: int, seed: int
) -> list[TaskRow]:
    """The stream of one shuffle: without times, each entry under a name of its own."""
    rng = random.Random(seed)
    wanted = sum(one.capacity.gpu for one in machines) * DEVICE_MILLI * percent // 100
    pool = [replace(row, submit_ms=None, duration_ms=None) for row in tasks]
    rng.shuffle(pool)
    stream, asked = [], 0
    for row in pool:
        if asked >= wanted:
            break
        stream.append(row)
        asked += row.demand.gpu_total_milli
    copies = 0
    while asked < wanted:
        row = rng.choice(pool)
        copies += 1
        stream.append(replace(row, id=f"{row.id}-copy-{copies}"))
        asked += row.demand.gpu_total_milli
    rng.shuffle(stream)
    return stream


def allocation(
    tasks: Sequence[TaskRow],
    machines: Sequence[MachineRow],
    *,
    percent: int,
    shuffles: Sequence[int],
    setting: Setting,
) -> dict[str, Any]:
    """GPU allocation in per cent of all GPUs, over these shuffles; every placement is checked."""
    found, violations = [], 0
    for seed in shuffles:
        stream = stretched(tasks, machines, percent, seed)
        ran = simulate(machines, stream, replace(setting, seed=seed), time.perf_counter)
        violations += checked(machines, stream, ran).violations
        books = ran.result.history.accounts
        found.append(100 * books.used[GPU] / books.capacity[GPU])
    return {
        "allocated_percent": round(statistics.fmean(found), DIGITS),
        "sd": round(statistics.stdev(found), DIGITS) if len(found) > 1 else None,
        "by_shuffle": {
            str(seed): round(one, DIGITS) for seed, one in zip(shuffles, found, strict=True)
        },
        "violations": violations,
    }


def best_published(path: Path, percent: int) -> dict[str, tuple[str, float]]:
    """By list, the published policy with the highest mean at this share, and the mean."""
    best: dict[str, tuple[str, float]] = {}
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            mean = float(line["allocated_pct_mean"])
            name = line["workload"]
            if int(line["arrived_pct"]) == percent and mean > best.get(name, ("", 0.0))[1]:
                best[name] = (line["policy"], mean)
    return best


@app.command()
def main(
    machines: Annotated[Path, typer.Option(help="The openb machines, CSV.")],
    lists: Annotated[list[Path], typer.Argument(help="openb lists, .csv or .csv.gz.")],
    results: Annotated[
        Path | None, typer.Option(help="The publishers' summary.csv, to compare with.")
    ] = None,
    policy: Annotated[str, typer.Option(help=f"Of {', '.join(POLICY_NAMES)}.")] = (
        DEFAULT_POLICY_NAME
    ),
    percent: Annotated[int, typer.Option(min=1, max=1_000)] = PERCENT,
    first: Annotated[int, typer.Option(min=0, help="First shuffle's seed.")] = FIRST_SHUFFLE,
    shuffles: Annotated[int, typer.Option(min=1, max=1_000)] = SHUFFLES,
    batch: Annotated[
        int, typer.Option(min=1, max=BATCH_MAX, help="Tasks of one round; 1 = one by one.")
    ] = BATCH_MAX,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """GPU allocation of every list, mean of the shuffles, beside the published best mean."""
    if policy not in POLICY_NAMES:
        raise typer.BadParameter(f"must be one of {', '.join(POLICY_NAMES)}", param_hint="--policy")
    try:
        fleet = with_gpus(read_machines(machines, OPENB))
        streams = {_name(path): read_tasks(path, OPENB) for path in lists}
    except InputError as error:
        Console(stderr=True).print(str(error), markup=False, soft_wrap=True)
        raise typer.Exit(2) from error
    best = best_published(results, percent) if results else {}
    found = {}
    for name, tasks in streams.items():
        found[name] = allocation(
            tasks,
            fleet,
            percent=percent,
            shuffles=range(first, first + shuffles),
            setting=Setting(policy=policy, batch=batch),
        )
        if name in best:
            published, mean = best[name]
            ours = found[name]["allocated_percent"]
            found[name] |= {"published": published, "published_percent": mean, "above": ours > mean}
    if as_json:
        print(json.dumps({"policy": policy, "percent": percent, "batch": batch, "lists": found}))
    else:
        Console().print(_table(found))
    if any(one["violations"] for one in found.values()):
        raise typer.Exit(1)


def _name(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".csv").removeprefix("tasks_")


def _table(found: dict[str, dict[str, Any]]) -> Table:
    shown = Table("list", "allocated %", "sd", "published best %", "", "violations")
    for name, one in found.items():
        shown.add_row(
            name,
            f"{one['allocated_percent']:.2f}",
            "-" if one["sd"] is None else f"{one['sd']:.2f}",
            f"{one['published_percent']:.2f} {one['published']}" if "published" in one else "-",
            ("above" if one["above"] else "below") if "published" in one else "",
            str(one["violations"]),
        )
    return shown


if __name__ == "__main__":
    app(prog_name="python -m drystone.simulate.published")
