"""The benchmarks as commands: `drystone bench NAME --json` prints one object and nothing else."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from drystone.bench import fill as fill_bench
from drystone.bench import lifecycle as lifecycle_bench
from drystone.bench import placement as placement_bench
from drystone.bench import round as round_bench

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Measure Drystone.")
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
    say = Console(stderr=True).print
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
    _print(placement_bench.run(machines, tasks, min(shapes, tasks), seed), as_json)


@app.command()
def fill(
    machines: Annotated[int, typer.Option(min=1, max=1_000_000)] = 100_000,
    batch: Annotated[int, typer.Option(min=1, max=1_000_000, help="Tasks in a batch.")] = 10_000,
    as_json: JsonFlag = False,
) -> None:
    """Batch after batch from 70 % in use until hardly a task fits: what scarcity costs."""
    _print(fill_bench.run(machines, batch), as_json)


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
    say = Console(stderr=True).print
    _print(round_bench.run(machines, tasks, partitions, database, say), as_json)


def _print(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
        return
    table = Table("figure", "value")
    for key, value in found.items():
        shown = (
            ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        )
        table.add_row(key, str(shown))
    Console().print(table)


if __name__ == "__main__":
    app(prog_name="drystone bench")
