"""Other people's traces as files of `drystone simulate`. Knows columns, nothing of placement."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from drystone.simulate.cells import Columns, InputError, rows
from drystone.simulate.formats import OPENB, read_machines, read_tasks
from drystone.simulate.published import FIRST_SHUFFLE, PERCENT, stretched, with_gpus
from drystone.simulate.records import MachineRow, TaskRow

LCG_SITES = Columns(
    known=("site", "name", "jobs", "cpu_hours", "peak_if_started_at_once"),
    required=("site", "name", "peak_if_started_at_once"),
)
LCG_TASKS = Columns(
    known=("job", "submit_s", "run_s", "req_time_s", "user", "group", "site"),
    required=("job", "submit_s", "run_s", "group", "site"),
)
CORE_MILLI = 1_000
Cells = Sequence[object]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def lcg_machines(sites: Path, cores_percent: int = 100) -> Iterator[Cells]:
    """A cluster per site, with one machine of the cores that were busy there at its peak."""
    yield ("id", "cluster", "cpu_milli")
    for row in rows(sites, LCG_SITES):
        cores = -(-row.quantity("peak_if_started_at_once") * cores_percent // 100)
        site = f"site-{row.needed('site')}"
        yield (site, site, max(1, cores) * CORE_MILLI)


def lcg_tasks(log: Path, *, anywhere: bool = False) -> Iterator[Cells]:
    """One core each, for as long as it ran, at the site where it ran (or at any)."""
    yield ("id", "team", "cpu_milli", "clusters", "submit_s", "duration_s")
    for row in rows(log, LCG_TASKS):
        where = "" if anywhere else f"site-{row.needed('site')}"
        times = (row.needed("submit_s"), row.needed("run_s"))
        yield (
            f"lcg-{row.needed('job')}",
            f"group-{row.needed('group')}",
            CORE_MILLI,
            where,
            *times,
        )


def openb_machines(machines: Iterable[MachineRow]) -> Iterator[Cells]:
    """As `drystone simulate` reads them."""
    yield ("id", "cpu_milli", "memory_mib", "gpu", "gpu_model")
    for one in machines:
        room = one.capacity
        yield (one.id, room.cpu_milli, room.memory_mib, room.gpu, one.gpu_model)


def openb_tasks(stream: Iterable[TaskRow]) -> Iterator[Cells]:
    """As `drystone simulate` reads them, without times."""
    yield ("id", "cpu_milli", "memory_mib", "gpu", "gpu_milli", "gpu_models")
    for row in stream:
        asks, share = row.demand.asks, row.demand.gpu_milli
        models = "|".join(row.demand.gpu_models)
        yield (row.id, asks.cpu_milli, asks.memory_mib, asks.gpu, share or "", models)


@app.command()
def lcg(
    source: Annotated[Path, typer.Argument(help="Folder with jobs.csv.gz and sites.csv.")],
    target: Annotated[Path, typer.Argument(help="Folder for machines.csv and tasks.csv.")],
    anywhere: Annotated[
        bool, typer.Option("--anywhere", help="Let every task run at any site.")
    ] = False,
    cores_percent: Annotated[
        int, typer.Option(min=1, max=1_000, help="Size of the sites, of their peak.")
    ] = 100,
) -> None:
    """The LCG grid log of 2005: 188,041 one-core tasks over 170 sites."""
    log = source / "jobs.csv.gz"
    _write(
        target, lcg_machines(source / "sites.csv", cores_percent), lcg_tasks(log, anywhere=anywhere)
    )


@app.command()
def openb(
    machines: Annotated[Path, typer.Argument(help="The openb machines.")],
    tasks: Annotated[Path, typer.Argument(help="An openb list.")],
    target: Annotated[Path, typer.Argument(help="Folder for machines.csv and tasks.csv.")],
    percent: Annotated[int, typer.Option(min=1, max=1_000)] = PERCENT,
    seed: Annotated[int, typer.Option(min=0, help="Of copies and shuffle.")] = FIRST_SHUFFLE,
) -> None:
    """One shuffle of the published set-up, as files: what `published` runs ten of."""
    try:
        fleet = with_gpus(read_machines(machines, OPENB))
        stream = stretched(read_tasks(tasks, OPENB), fleet, percent, seed)
    except InputError as error:
        _fail(error)
    _write(target, openb_machines(fleet), openb_tasks(stream))


def _write(target: Path, machines: Iterable[Cells], tasks: Iterable[Cells]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    try:
        for name, lines in (("machines.csv", machines), ("tasks.csv", tasks)):
            with (target / name).open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows(lines)
    except InputError as error:
        _fail(error)


def _fail(error: InputError) -> NoReturn:
    Console(stderr=True).print(str(error), markup=False, soft_wrap=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    app(prog_name="python -m drystone.simulate.convert")
