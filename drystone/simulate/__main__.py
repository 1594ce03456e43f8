"""`drystone simulate`: what would become of these tasks on these machines? The command."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from drystone.simulate.cells import InputError
from drystone.simulate.engine import BATCH_MAX, DEFAULT_POLICY_NAME, POLICY_NAMES
from drystone.simulate.figures import table
from drystone.simulate.formats import FORMATS, read_machines, read_tasks
from drystone.simulate.output import NoOutputError, can_write, write_placements
from drystone.simulate.plot import NoPlotError, can_plot, plot
from drystone.simulate.records import MachineRow, TaskRow
from drystone.simulate.replay import Tell
from drystone.simulate.run import Ran, Setting, checked, simulate

EXIT_INPUT = 2
EXIT_VIOLATIONS = 1
SHOWN_MAX = 20
POLICIES_MAX = 16

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
_err = Console(stderr=True)


@app.command()
def main(
    machines: Annotated[Path, typer.Option(help="CSV (or .csv.gz) of the machines.")],
    tasks: Annotated[Path, typer.Option(help="CSV (or .csv.gz) of the tasks.")],
    out: Annotated[Path | None, typer.Option(help="Write the placements here, as CSV.")] = None,
    form: Annotated[
        str, typer.Option("--format", help=f"Of both files: {' or '.join(FORMATS)}.")
    ] = "drystone",
    policy: Annotated[
        str, typer.Option(help=f"Of {', '.join(POLICY_NAMES)}; several, with commas, side by side.")
    ] = DEFAULT_POLICY_NAME,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Decides among equals.")] = 0,
    batch: Annotated[
        int, typer.Option(min=1, max=BATCH_MAX, help="Most tasks of one round.")
    ] = BATCH_MAX,
    plot_to: Annotated[
        Path | None, typer.Option("--plot", help="Draw utilisation over time (PNG, SVG or PDF).")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check every placement anew; exit 1 if one is wrong.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Place a stream of tasks on a fleet, with the engine that places in production.

    Without times of arrival the tasks come one after another and never leave (a packing run);
    with them a virtual clock runs. Nothing is started anywhere.
    """
    names = _policies(policy)
    if form not in FORMATS:
        _fail(f"--format must be one of {', '.join(FORMATS)}, not {form!r}")
    try:
        _can_write(out, plot_to)
        fleet = read_machines(machines, FORMATS[form])
        stream = read_tasks(tasks, FORMATS[form])
    except (InputError, NoPlotError, NoOutputError) as error:
        _fail(str(error))
    if not fleet:
        _say(f"{machines} holds no machine: all tasks wait, as they would where none is there yet")
    runs: dict[str, Ran] = {}
    wrong = 0
    for name in names:
        with _progress(name, len(stream)) as tell:
            setting = Setting(policy=name, seed=seed, batch=batch)
            runs[name] = simulate(fleet, stream, setting, time.perf_counter, tell)
        if check:
            wrong += _check(fleet, stream, name, runs[name])
        if out is not None:
            # With one policy the very file that was asked for, otherwise one beside it for each.
            path = out if len(names) == 1 else out.with_name(f"{out.stem}-{name}{out.suffix}")
            _written("--out", partial(write_placements, path, runs[name].result.placements))
    if plot_to is not None:
        timed = bool(stream) and stream[0].submit_ms is not None
        histories = {name: ran.result.history for name, ran in runs.items()}
        _written("--plot", partial(plot, plot_to, histories, timed=timed))
    _print(runs, as_json=as_json)
    if wrong:
        raise typer.Exit(EXIT_VIOLATIONS)


def _can_write(out: Path | None, plot_to: Path | None) -> None:
    if plot_to is not None:
        can_plot(plot_to)
    for option, path in (("--out", out), ("--plot", plot_to)):
        if path is not None:
            can_write(option, path)


def _policies(written: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in written.split(",") if name.strip()))
    unknown = [name for name in names if name not in POLICY_NAMES]
    if unknown or not names:
        _fail(f"--policy must be of {', '.join(POLICY_NAMES)}, not {', '.join(unknown) or 'empty'}")
    return names[:POLICIES_MAX]


def _print(runs: dict[str, Ran], *, as_json: bool) -> None:
    found = [ran.figures for ran in runs.values()]
    if as_json:
        print(json.dumps(found[0] if len(found) == 1 else {"policies": found}))
    else:
        Console().print(table(found))


def _check(fleet: list[MachineRow], stream: list[TaskRow], name: str, ran: Ran) -> int:
    found = checked(fleet, stream, ran)
    for what in found.described[:SHOWN_MAX]:
        _err.print(f"{name}: {what}", markup=False, highlight=False)
    return found.violations


def _written(option: str, write: Callable[[], None]) -> None:
    try:
        write()
    except OSError as error:
        _fail(f"{option}: {error.strerror or error}")


@contextmanager
def _progress(name: str, total: int) -> Iterator[Tell]:
    """A bar on a terminal; nothing where standard error is a file or a pipe."""
    if not _err.is_terminal:
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=_err, transient=True) as bar:
        line = bar.add_task(name, total=total)
        yield lambda more: bar.advance(line, more)


def _say(message: str) -> None:
    _err.print(f"drystone simulate: {message}", markup=False, highlight=False, soft_wrap=True)


def _fail(message: str) -> NoReturn:
    _say(message)
    raise typer.Exit(EXIT_INPUT)


if __name__ == "__main__":
    app(prog_name="drystone simulate")
