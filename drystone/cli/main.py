"""The `drystone` command: which commands there are. Each family of commands has its own file."""

from importlib.metadata import version
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from domain.misfit import told
from drystone.cli.audit import add_audit
from drystone.cli.drains import add_drains
from drystone.cli.local import add_local
from drystone.cli.places import add_places
from drystone.cli.processes import add_processes
from drystone.cli.run import add_run
from drystone.cli.simulate import add_simulate
from drystone.cli.submit import add_submit
from drystone.cli.tasks import add_tasks


def _print_version(asked: bool) -> None:
    if asked:
        print(f"drystone {version('drystone')}")
        raise typer.Exit


class _Commands(TyperGroup):
    """Options that do not fit are told in our words, as everything else that does not."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if isinstance(error.__cause__, ValidationError):
                error.message = told(error.__cause__)
            raise


app = typer.Typer(
    name="drystone",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def drystone(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say which."),
    ] = False,
) -> None:
    """A durable task scheduler for many compute clusters."""


for add in (
    add_local,
    add_run,
    add_submit,
    add_tasks,
    add_places,
    add_drains,
    add_audit,
    add_processes,
    add_simulate,
):
    add(app)


def app_main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    app_main()
