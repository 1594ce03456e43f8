"""The processes of a Drystone: a command becomes the process it names, options passed through."""

import os
import sys

import typer

THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def become(module: str, arguments: list[str]) -> None:
    """Turn into `python -P -m module`; without -P a folder of the user's called `api` would win."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    os.execv(command[0], command)  # noqa: S606


def worker(context: typer.Context) -> None:
    """Run a Temporal worker: workflows, placement and the scheduler's own activities."""
    become("worker", context.args)


def api(context: typer.Context) -> None:
    """Run the REST API."""
    become("api", context.args)


def agent(context: typer.Context) -> None:
    """Run the agent of a cluster."""
    become("agent", context.args)


def keeper(context: typer.Context) -> None:
    """Run the keeper of this machine."""
    become("keeper", context.args)


def bench(context: typer.Context) -> None:
    """Measure this machine; without another word it lists what can be measured."""
    become("drystone.bench", context.args)


def add_processes(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (worker, api, agent, keeper):
        app.command(context_settings=THROUGH, rich_help_panel="Processes")(command)
    app.command(context_settings=THROUGH, rich_help_panel="Measure")(bench)
