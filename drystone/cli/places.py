"""`drystone machines`, `clusters`, `cordon`, `uncordon`, `top`: where work runs."""

import getpass
import time
from collections import Counter
from typing import Annotated

import typer

from domain.resources import COLUMNS, Resources
from domain.views import ClusterView, MachineView
from drystone.cli.exits import Exit
from drystone.cli.output import (
    JsonOption,
    UrlOption,
    age,
    asking,
    console,
    fail,
    print_facts,
    print_json,
    print_table,
)
from drystone.client import Client

PAGES_MAX = 1_000
BLOCKED_SHOWN_MAX = 3

machines = typer.Typer(invoke_without_command=True)
clusters = typer.Typer(invoke_without_command=True)

Machine = Annotated[str, typer.Argument(help="CLUSTER/MACHINE, or a machine of `local`.")]


@machines.callback()
def machines_alone(context: typer.Context) -> None:
    """Look at machines: all of them, without another word."""
    if context.invoked_subcommand is None:
        list_machines()


@clusters.callback()
def clusters_alone(context: typer.Context) -> None:
    """Look at clusters: all of them, without another word."""
    if context.invoked_subcommand is None:
        list_clusters()


@machines.command("list")
def list_machines(
    cluster: Annotated[str | None, typer.Option("--cluster", help="Only of this one.")] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Machines, what they have, and what is used of it."""
    with asking(url) as client:
        found = _all_machines(client, cluster)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            f"{m.cluster}/{m.name}",
            state_of(m),
            _of(m.used.cpu_milli, m.capacity.cpu_milli, 1_000),
            _of(m.used.memory_mib, m.capacity.memory_mib, 1_024),
            _of(m.used.gpu, m.capacity.gpu, 1) if m.capacity.gpu else "",
            m.zone,
        )
        for m in found
    ]
    print_table(["MACHINE", "STATE", "CPU", "MEMORY GiB", "GPU", "ZONE"], rows, "no machines yet")


@machines.command()
def headroom(url: UrlOption = None, as_json: JsonOption = False) -> None:
    """What is free, how much of it is stranded, and how many more of what waits would fit."""
    with asking(url) as client:
        found = client.headroom()
    if as_json:
        print_json(found)
        return
    resources = [
        (name, one.capacity, one.used, one.closed, one.free, one.largest, one.stranded)
        for name, one in found.resources.items()
        if one.capacity
    ]
    columns = ["RESOURCE", "CAPACITY", "USED", "CLOSED", "FREE", "LARGEST", "STRANDED"]
    print_table(columns, resources, "no machines yet")
    shapes = [
        (_amounts(one.resources), one.waiting, one.machines, one.more, _amounts(one.fragmented))
        for one in found.shapes
    ]
    columns = ["SHAPE", "WAITING", "MACHINES", "MORE FIT", "FRAGMENTED"]
    print_table(columns, shapes, "nothing waits or runs")


def _amounts(resources: Resources) -> str:
    named = zip(COLUMNS, resources.vector(), strict=True)
    return " ".join(f"{name}={amount}" for name, amount in named if amount)


def cordon(machine: Machine, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """No new tasks on a machine; what runs there goes on."""
    _set_cordon(machine, url, as_json, cordoned=True)


def uncordon(machine: Machine, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """New tasks on a machine again."""
    _set_cordon(machine, url, as_json, cordoned=False)


@clusters.command("list")
def list_clusters(url: UrlOption = None, as_json: JsonOption = False) -> None:
    """All clusters."""
    with asking(url) as client:
        page = client.clusters()
    if as_json:
        print_json(page)
        return
    rows = [
        (c.name, cluster_state_of(c), c.machines, c.attempts, age(c.heard_at), c.site)
        for c in page.items
    ]
    columns = ["CLUSTER", "STATE", "MACHINES", "ATTEMPTS", "HEARD", "SITE"]
    print_table(columns, rows, "no clusters yet")


@clusters.command()
def get(name: str, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """One cluster."""
    with asking(url) as client:
        cluster = client.cluster(name)
    _print_cluster(cluster, as_json)


@clusters.command("confirm-lost")
def confirm_lost(
    name: str,
    by: Annotated[str | None, typer.Option("--by", help="Who says so; else you.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Vouch that nothing of a cluster runs any more: its work may be started elsewhere at once."""
    if not yes and not typer.confirm(f"Nothing of cluster {name} runs any more?"):
        fail("not confirmed", Exit.FAILED)
    with asking(url) as client:
        cluster = client.confirm_lost(name, by=by or getpass.getuser())
    _print_cluster(cluster, as_json)


def top(
    every: Annotated[float, typer.Option("--every", help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="One look.")] = False,
    url: UrlOption = None,
) -> None:
    """Clusters, machines and tasks at a glance, again and again until Ctrl-C."""
    screen = console()
    with asking(url) as client:
        while True:
            if not once:
                screen.clear()
            _print_glance(client)
            if once:
                return
            time.sleep(max(every, 0.2))


def _print_glance(client: Client) -> None:
    found = _all_machines(client, None)
    used, there = Resources(), Resources()
    for machine in found:
        used, there = used.plus(machine.used), there.plus(machine.capacity)
    states = Counter(c.state.value for c in client.clusters().items)
    print_facts(
        [
            ("clusters", ", ".join(f"{n} {state}" for state, n in states.items())),
            ("machines", len(found)),
            ("cpu", _of(used.cpu_milli, there.cpu_milli, 1_000)),
            ("memory GiB", _of(used.memory_mib, there.memory_mib, 1_024)),
        ]
    )
    rows = [
        (t.key, t.phase.value, t.machine, age(t.enqueued_at), t.spec.command[0])
        for t in client.list(limit=20).items
    ]
    print()
    print_table(["TASK", "PHASE", "MACHINE", "AGE", "COMMAND"], rows, "no tasks")


def _all_machines(client: Client, cluster: str | None) -> list[MachineView]:
    found: list[MachineView] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = client.machines(cluster=cluster, cursor=cursor)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            break
    return found


def _set_cordon(machine: str, url: str | None, as_json: bool, *, cordoned: bool) -> None:
    cluster, name = named_machine(machine)
    with asking(url) as client:
        view = client.cordon(cluster, name, cordoned=cordoned)
    if as_json:
        print_json(view)
    else:
        print(f"{view.cluster}/{view.name}: {state_of(view)}")


def named_machine(machine: str) -> tuple[str, str]:
    """Cluster and name; a name alone is of the cluster that `drystone up` makes."""
    cluster, slash, name = machine.partition("/")
    if not machine or (slash and not (cluster and name)) or "/" in name:
        fail(f"{machine!r} names no machine: give CLUSTER/MACHINE, or MACHINE", Exit.USAGE)
    return (cluster, name) if slash else ("local", machine)


def _print_cluster(cluster: ClusterView, as_json: bool) -> None:
    if as_json:
        print_json(cluster)
    else:
        print_facts(list(cluster.model_dump().items()))


def cluster_state_of(cluster: ClusterView) -> str:
    """In words: whether it answers, and how far the drains of its machines have come."""
    words = [cluster.state.value]
    if cluster.drained_machines or cluster.drain is not None:
        count = f"{cluster.drained_machines} machine{'s' * (cluster.drained_machines > 1)}"
        count = "all machines" if cluster.drain is not None else count
        left = cluster.drained_attempts
        words.append(f"draining {count}, {left} left" if left else f"{count} drained")
    return ", ".join(words)


def state_of(machine: MachineView) -> str:
    """In words: whether it answers, takes tasks, and what stands in the way of a drain."""
    words = ["reachable" if machine.reachable else "silent"]
    words += ["cordoned"] if machine.cordoned else []
    if machine.drain is not None:
        left = machine.drain.attempts
        words.append(f"draining, {left} left" if left else "drained")
        blocked = machine.drain.blocked_by
        if blocked:
            words.append(f"no room elsewhere for {', '.join(blocked[:BLOCKED_SHOWN_MAX])}")
    return ", ".join(words)


def _of(used: int, there: int, unit: int) -> str:
    return (
        f"{used / unit:g}/{there / unit:g}"
        if unit == 1
        else f"{used / unit:.1f}/{there / unit:.1f}"
    )


def add_places(app: typer.Typer) -> None:
    """Add these commands."""
    panel = "Machines and clusters"
    app.add_typer(machines, name="machines", rich_help_panel=panel)
    app.add_typer(clusters, name="clusters", rich_help_panel=panel)
    for command in (cordon, uncordon, top):
        app.command(rich_help_panel=panel)(command)
