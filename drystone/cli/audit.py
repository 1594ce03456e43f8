"""`drystone audit`, `brake`, `machines confirm-lost`: for those who keep the system honest."""

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from domain.audit import AuditReport
from domain.errors import DrystoneError
from domain.views import BrakeView
from drystone.cli.exits import Exit
from drystone.cli.output import (
    RETRIES,
    JsonOption,
    UrlOption,
    age,
    exit_of,
    explained,
    fail,
    print_facts,
    print_json,
    print_table,
)
from drystone.cli.places import machines, named_machine
from drystone.operators import Operator

ByOption = Annotated[str | None, typer.Option("--by", help="Who says so; else you.")]


def audit(
    now: Annotated[bool, typer.Option("--now", help="Begin one, and wait for its end.")] = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Whether claims, quota and what agents report agree; exits with 1 while they do not."""
    with operating(url) as operator:
        told = operator.audit()
        # Where none has ended yet, nothing is known: the answer must not be that all is well.
        if now or (told.ended_at is None and told.run <= 1):
            told = operator.audit_now()
    if as_json:
        print_json(told)
    else:
        _print_audit(told)
    if told.standing:
        raise typer.Exit(Exit.FAILED)


def brake(
    lift: Annotated[bool, typer.Option("--lift", help="Let losses be replaced again.")] = False,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="With --lift: the one on its machines.")
    ] = None,
    by: ByOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Whether the stop on mass replacement holds, for clusters and for machines; and its lift."""
    if cluster is not None and not lift:
        fail("--cluster goes with --lift", Exit.USAGE)
    with operating(url) as operator:
        who = by or getpass.getuser()
        if lift and cluster is not None:
            operator.lift_machines(cluster, by=who)
        elif lift:
            operator.lift_brake(by=who)
        state = operator.brake()
    if as_json:
        print_json(state)
    else:
        _print_brake(state)


def confirm_lost(
    machine: Annotated[str, typer.Argument(help="CLUSTER/MACHINE, or a machine of `local`.")],
    by: ByOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Vouch that nothing of a machine runs any more: its work may be started elsewhere at once."""
    cluster, name = named_machine(machine)
    if not yes and not typer.confirm(f"Nothing of machine {machine} runs any more?"):
        fail("not confirmed", Exit.FAILED)
    with operating(url) as operator:
        view = operator.confirm_machine_lost(cluster, name, by=by or getpass.getuser())
    if as_json:
        print_json(view)
    else:
        print(f"{view.cluster}/{view.name}: taken to be lost")


_WHO_IS_ASKED = "(for their lists; nobody is, where agents count as many attempts as the claims do)"


@contextmanager
def operating(url: str | None) -> Iterator[Operator]:
    """As `output.asking`, for operators."""
    try:
        with Operator(url, retries=RETRIES) as operator:
            yield operator
    except DrystoneError as error:
        fail(explained(error), exit_of(error))


def _print_audit(told: AuditReport) -> None:
    print_facts(
        [
            ("audit", told.run),
            ("began", told.began_at),
            ("ended", told.ended_at or "under way"),
            ("rows looked at", told.looked_at),
            ("machines asked", f"{told.machines_asked} {_WHO_IS_ASKED}"),
            ("agents unheard", told.clusters_unheard),
            ("machines doubted", told.machines_doubted),
            ("found ever", sum(count.found for count in told.counts.values())),
            ("healed ever", sum(count.healed for count in told.counts.values())),
        ]
    )
    print()
    rows = [
        (one.fault, one.subject, one.expected, one.found, age(one.first_seen), one.healing)
        for one in told.standing
    ]
    columns = ["DIFFERENCE", "SUBJECT", "EXPECTED", "FOUND", "SINCE", "HEALING"]
    print_table(columns, rows, "no difference stands")


def _print_brake(state: BrakeView) -> None:
    print(f"held since {state.since}" if state.held else "not held")
    print(f"clusters silent: {state.silent} of {state.counted}")
    if state.by:
        print(f"lifted last by {state.by}")
    for cluster, since in state.machines.items():
        print(f"machines of {cluster}: held since {since}")


def add_audit(app: typer.Typer) -> None:
    """Add these commands."""
    machines.command("confirm-lost")(confirm_lost)
    for command in (audit, brake):
        app.command(rich_help_panel="Machines and clusters")(command)
