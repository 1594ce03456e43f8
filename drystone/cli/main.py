"""The `drystone` command: which commands there are. Each family of commands has its own file."""

import typer

from drystone.cli.local import add_local
from drystone.cli.places import add_places
from drystone.cli.processes import add_processes
from drystone.cli.run import add_run
from drystone.cli.simulate import add_simulate
from drystone.cli.submit import add_submit
from drystone.cli.tasks import add_tasks

app = typer.Typer(
    name="drystone",
    help="A durable task scheduler for many compute clusters.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for add in (add_local, add_run, add_submit, add_tasks, add_places, add_processes, add_simulate):
    add(app)


def app_main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    app_main()
