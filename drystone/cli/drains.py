"""`drystone drain`, `undrain`: empty a machine or a cluster, and have that end."""

import getpass
from typing import Annotated

import typer

from domain.views import ClusterView, MachineView
from drystone.cli.audit import ByOption, operating
from drystone.cli.exits import Exit
from drystone.cli.output import JsonOption, UrlOption, fail, print_json
from drystone.cli.places import named_machine, state_of

Target = Annotated[
    str | None, typer.Argument(metavar="MACHINE", help="CLUSTER/MACHINE, or a machine of `local`.")
]
ClusterOption = Annotated[str | None, typer.Option("--cluster", help="A whole cluster instead.")]


def drain(
    machine: Target = None,
    cluster: ClusterOption = None,
    deadline: Annotated[
        int | None,
        typer.Option("--deadline", min=0, help="Seconds until what finds no room is stopped, too."),
    ] = None,
    by: ByOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Empty a machine or cluster: what runs there is stopped as it finds room elsewhere."""
    _set(machine, cluster, by, url, as_json, drained=True, deadline_s=deadline)


def undrain(
    machine: Target = None,
    cluster: ClusterOption = None,
    by: ByOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a drain: new tasks again, and what was not told to stop yet stays."""
    _set(machine, cluster, by, url, as_json, drained=False)


def _set(
    machine: str | None,
    cluster: str | None,
    by: str | None,
    url: str | None,
    as_json: bool,
    *,
    drained: bool,
    deadline_s: int | None = None,
) -> None:
    if (machine is None) == (cluster is None):
        fail("give a machine, or a cluster with --cluster", Exit.USAGE)
    of_cluster, name = named_machine(machine) if machine is not None else (cluster or "", None)
    with operating(url) as operator:
        view = operator.drain(
            of_cluster, name, by=by or getpass.getuser(), drained=drained, deadline_s=deadline_s
        )
    if as_json:
        print_json(view)
    else:
        print(_told(view, drained))


def _told(view: MachineView | ClusterView, drained: bool) -> str:
    if isinstance(view, MachineView):
        return f"{view.cluster}/{view.name}: {state_of(view)}"
    what = "is being emptied" if drained else "takes new tasks again"
    return f"cluster {view.name} {what}: see `drystone machines list --cluster {view.name}`"


def add_drains(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (drain, undrain):
        app.command(rich_help_panel="Machines and clusters")(command)
