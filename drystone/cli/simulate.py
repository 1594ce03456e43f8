"""`drystone simulate`: becomes the process that answers what-if questions on files."""

import typer

from drystone.cli.processes import THROUGH, become


def simulate(context: typer.Context) -> None:
    """What would become of these tasks on these machines? Files in, figures out."""
    become("drystone.simulate", context.args)


def add_simulate(app: typer.Typer) -> None:
    """Add the command."""
    app.command(context_settings=THROUGH, rich_help_panel="Measure")(simulate)
