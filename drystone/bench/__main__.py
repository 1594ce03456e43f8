"""The benchmarks as commands: `drystone bench NAME --json` prints one object and nothing else."""

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from drystone.bench import fill as fill_bench
from drystone.bench import lifecycle as lifecycle_bench
from drystone.bench import placement as placement_bench
from drystone.bench import round as round_bench
from drystone.bench.telling import measuring

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Measure Drystone.",
)
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.callback()
def benches() -> None:
    """Medians of at least five runs unless said otherwise."""


@app.command()
def lifecycle(
    tasks: Annotated[int, typer.Option(min=1, max=100_000, help="Tasks per round.")] = 400,
    concurrency: Annotated[int, typer.Option(min=1, max=2_000)] = 50,
    rate: Annotated[float, typer.Option(min=0.1, max=10_000, help="Arrivals per second.")] = 25,
    index_machines: Annotated[
        int, typer.Option(min=0, max=200_000, help="More machines in the index.")
    ] = 0,
    as_json: JsonFlag = False,
) -> None:
    """A whole task beside the least that a durable task can cost, on an installation of its own."""
    with measuring("lifecycle", sys.stderr) as say:
        found = lifecycle_bench.run(tasks, concurrency, rate, index_machines, say)
    _print(found, as_json)


@app.command()
def placement(
    machines: Annotated[int, typer.Option(min=1, max=1_000_000)] = 100_000,
    tasks: Annotated[int, typer.Option(min=1, max=1_000_000, help="Tasks in a batch.")] = 10_000,
    shapes: Annotated[int, typer.Option(min=1, max=1_000_000, help="Distinct demands.")] = 50,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    as_json: JsonFlag = False,
) -> None:
    """A batch on machines about 70 % in use: columns in, machines out, room taken in memory."""
    with measuring("placement", sys.stderr) as say:
        found = placement_bench.run(machines, tasks, min(shapes, tasks), seed, say=say)
    _print(found, as_json)


@app.command()
def fill(
    machines: Annotated[int, typer.Option(min=1, max=1_000_000)] = 100_000,
    batch: Annotated[int, typer.Option(min=1, max=1_000_000, help="Tasks in a batch.")] = 10_000,
    as_json: JsonFlag = False,
) -> None:
    """Batch after batch from 70 % in use until hardly a task fits: what scarcity costs."""
    with measuring("fill", sys.stderr) as say:
        found = fill_bench.run(machines, batch, say)
    _print(found, as_json)


@app.command("round")
def whole_round(
    machines: Annotated[int, typer.Option(min=1, max=200_000)] = 100_000,
    tasks: Annotated[int, typer.Option(min=1, max=2_000_000, help="Rows that wait.")] = 10_000,
    partitions: Annotated[int, typer.Option(min=1, max=64, help="Processes, each with teams.")] = 1,
    database: Annotated[
        str, typer.Option(help="SQLite or PostgreSQL; a database of its own is made beside it.")
    ] = "sqlite://",
    as_json: JsonFlag = False,
) -> None:
    """From rows that wait to claims committed: the ledger read, placement, claims and verdicts."""
    with measuring("round", sys.stderr) as say:
        found = round_bench.run(machines, tasks, partitions, database, say)
    _print(found, as_json)


def _print(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
        return
    table = Table("FIGURE", "VALUE", box=None, pad_edge=False, header_style="bold")
    for key, value in found.items():
        shown = (
            ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        )
        table.add_row(key, str(shown))
    Console().print(table)


if __name__ == "__main__":
    app(prog_name="drystone bench")
