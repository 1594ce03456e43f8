"""`drystone tasks ...`: list, get, logs, cancel, explain, events, attempts."""

import shlex
import sys
from enum import StrEnum
from typing import Annotated

import typer

from domain.errors import DrystoneError, UnavailableError
from domain.faces import Explanation
from domain.resources import Resources
from domain.views import AttemptView, TaskView
from drystone.cli.exits import Exit
from drystone.cli.following import FOLLOW_RETRIES, Follower
from drystone.cli.output import (
    JsonOption,
    TeamOption,
    UrlOption,
    age,
    asking,
    ended,
    exit_of,
    explained,
    fail,
    note,
    print_facts,
    print_json,
    print_table,
    spoken,
)

tasks = typer.Typer(help="Look at tasks and end them.", no_args_is_help=True)

ATTEMPT_COLUMNS = ["ATTEMPT", "WHERE", "PLACED", "STARTED", "ENDED", "HOW"]
COMMAND_CHARS_MAX = 200
_WRITTEN = (("cpu", "m"), ("memory", "Mi"), ("gpu", ""), ("disk", "Mi"), ("net", "M"))
"""In the order of a resource vector."""
UNTOLD = "-"
"""Its agent has not said yet that it started, or does not answer."""


class Streams(StrEnum):
    """Which output."""

    STDOUT = "stdout"
    STDERR = "stderr"
    BOTH = "both"


TaskId = Annotated[str, typer.Argument(help="The task's id, or TEAM/ID.")]


@tasks.command("list")
def list_tasks(
    team: Annotated[str | None, typer.Option("--team", "-t", help="Only this team's.")] = None,
    phase: Annotated[str | None, typer.Option("--phase", help="PENDING, RUNNING, ...")] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Only on this cluster.")] = None,
    priority: Annotated[str | None, typer.Option("--priority", help="Only of this band.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many.")] = 50,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Where the last page ended.")
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tasks, newest first."""
    with asking(url) as client:
        page = client.list(
            team=team,
            phase=phase and phase.upper(),
            cluster=cluster,
            priority=priority,
            limit=limit,
            cursor=cursor,
        )
    if as_json:
        print_json(page)
        return
    print_table(
        ["TASK", "PHASE", "PRIORITY", "ATTEMPT", "WHERE", "AGE", "WHY"],
        [_row(task) for task in page.items],
        "no tasks",
    )
    if page.cursor:
        print(f"more: --cursor {page.cursor}", file=sys.stderr)


@tasks.command()
def get(
    task: TaskId,
    team: TeamOption = "default",
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait for its end.", min=0)] = 0,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Where one task stands."""
    team, task_id = _named(task, team)
    with asking(url) as client:
        try:
            view = client.wait(task_id, team=team, timeout_s=wait)
        except TimeoutError:
            view = client.get(task_id, team=team)
        attempts = client.attempts(task_id, team=team).items
    if as_json:
        print_json(view)
        return
    print_facts(_facts(view))
    if attempts:
        print()
        print_table(ATTEMPT_COLUMNS, [_attempt(a) for a in attempts], "")


@tasks.command()
def logs(
    task: TaskId,
    team: TeamOption = "default",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the task ends.")] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", "-a", help="Else the latest; followed: all.", min=1)
    ] = None,
    stream: Annotated[Streams, typer.Option("--stream", help="Which output.")] = Streams.BOTH,
    url: UrlOption = None,
) -> None:
    """The output of a task, both streams on standard output. Says where bytes are missing."""
    team, task_id = _named(task, team)
    with asking(url) as client:
        follower = Follower(client, team, task_id, tell=note, warn=note)
        if follow:
            client.get(task_id, team=team)
            client.retries = FOLLOW_RETRIES
            _follow(follower, stream, attempt)
            return
        pieces = client.output(task_id, team=team, attempt=attempt, stream=stream.value)
        for piece in pieces:
            if piece.stream is not None:
                follower.write(piece, sys.stdout.buffer)


def _follow(follower: Follower, stream: Streams, attempt: int | None) -> None:
    """Both streams at once, each as it comes; the first that must be given up says why."""
    names = ("stdout", "stderr") if stream is Streams.BOTH else (stream.value,)
    copying = [follower.start(name, sys.stdout.buffer, attempt) for name in names]
    for one in copying:
        one.join()
        if one.error is not None:
            raise one.error


@tasks.command()
def cancel(
    named: Annotated[list[str], typer.Argument(metavar="TASK...", help="Ids, or TEAM/ID.")],
    team: TeamOption = "default",
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Close it though it may still run somewhere.")
    ] = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask tasks to end: each of them, whatever becomes of the others."""
    told: list[TaskView] = []
    refused: list[DrystoneError] = []
    keys = [_named(task, team) for task in named]
    with asking(url) as client:
        for of_team, task_id in keys:
            try:
                view = client.cancel(task_id, team=of_team, abandon=abandon)
            except UnavailableError:
                raise
            except DrystoneError as error:
                refused.append(error)
                note(explained(error))
                continue
            told.append(view)
            if not as_json:
                print(f"{view.key}: {view.phase.value if view.phase.final else 'told to end'}")
    if as_json:
        print_json(told)
    if refused:
        raise typer.Exit(exit_of(refused[0]))


@tasks.command()
def explain(
    task: TaskId, team: TeamOption = "default", url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Why a task stands where it stands."""
    team, task_id = _named(task, team)
    with asking(url) as client:
        told = client.explain(task_id, team=team)
    if as_json:
        print_json(told)
    else:
        _print_explanation(told)


@tasks.command()
def events(
    task: TaskId, team: TeamOption = "default", url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """What happened to a task, oldest first."""
    team, task_id = _named(task, team)
    with asking(url) as client:
        page = client.events(task_id, team=team)
    if as_json:
        print_json(page)
        return
    rows = [(e.at, e.kind.value, e.number or "", e.detail) for e in page.items]
    print_table(["AT", "EVENT", "ATTEMPT", "DETAIL"], rows, "no events")


@tasks.command()
def attempts(
    task: TaskId, team: TeamOption = "default", url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """The attempts of a task, oldest first."""
    team, task_id = _named(task, team)
    with asking(url) as client:
        page = client.attempts(task_id, team=team)
    if as_json:
        print_json(page)
        return
    print_table(ATTEMPT_COLUMNS, [_attempt(a) for a in page.items], "no attempts")


def _named(task: str, team: str) -> tuple[str, str]:
    first, slash, second = task.partition("/")
    if not task or (slash and not (first and second)) or "/" in second:
        fail(f"{task!r} names no task: give ID or TEAM/ID", Exit.USAGE)
    return (first, second) if slash else (team, task)


def _row(task: TaskView) -> tuple[object, ...]:
    place = f"{task.cluster}/{task.machine}" if task.machine else ""
    return (
        task.key,
        task.phase.value,
        task.spec.priority.name,
        task.number or "",
        place,
        age(task.enqueued_at),
        _why(task),
    )


def _why(task: TaskView) -> str:
    if task.outcome is not None:
        code = "" if task.outcome.exit_code is None else f"exit {task.outcome.exit_code}"
        return ", ".join(word for word in (code, spoken(task.outcome.reason)) if word)
    return spoken(task.verdict.verdict.reason) if task.verdict else ""


def _facts(view: TaskView) -> list[tuple[str, object]]:
    spec = view.spec
    return [
        ("task", view.key),
        ("phase", view.phase.value),
        ("why", _why(view)),
        ("detail", view.outcome.detail if view.outcome else ""),
        ("priority", spec.priority.name),
        ("command", shlex.join(spec.command)[:COMMAND_CHARS_MAX]),
        ("asks", _asked(spec.resources)),
        ("where", f"{view.cluster}/{view.machine}" if view.machine else ""),
        ("attempt", view.number or ""),
        ("submitted", view.enqueued_at),
        ("ended", view.ended_at),
    ]


def _asked(resources: Resources) -> str:
    """As people write it: `cpu 100m, memory 512Mi`."""
    words = [
        f"{name} {amount}{unit}"
        for (name, unit), amount in zip(_WRITTEN, resources.vector(), strict=True)
        if amount
    ]
    return ", ".join(words + [f"{name} {amount}" for name, amount in resources.extra.items()])


def _attempt(attempt: AttemptView) -> tuple[object, ...]:
    started = attempt.started_at or (UNTOLD if attempt.ended_at is None else "")
    place = f"{attempt.cluster}/{attempt.machine}"
    return (
        attempt.number,
        place,
        attempt.placed_at,
        started,
        attempt.ended_at,
        _stands(attempt) if attempt.ending is None else ended(attempt.ending),
    )


def _stands(attempt: AttemptView) -> str:
    """What is known of an attempt whose end is not."""
    if attempt.closed:
        return "closed; may still hold room" if attempt.holds_room else "closed"
    if attempt.stop_cause is not None:
        return f"told to stop: {attempt.stop_cause.value.replace('_', ' ')}"
    if attempt.admitted_at is None:
        return "offered"
    return f"admitted {age(attempt.admitted_at)} ago"


def _print_explanation(told: Explanation) -> None:
    print(f"{told.team}/{told.id} is {told.phase.value}. {told.summary}")
    if told.nearest_miss:
        print(f"nearest miss: {told.nearest_miss}")
    if told.verdict and told.verdict.verdict.lost:
        print()
        lost = sorted(told.verdict.verdict.lost.items(), key=lambda item: -item[1])
        print_table(["MACHINES", "LOST TO"], [(n, spoken(reason)) for reason, n in lost], "")
    if told.history:
        print()
        rows = [(v.at, spoken(v.verdict.reason), v.verdict.detail) for v in told.history]
        print_table(["SINCE", "WHY IT WAITED", "NEAREST MISS"], rows, "")


def add_tasks(app: typer.Typer) -> None:
    """Add this family."""
    app.add_typer(tasks, name="tasks", rich_help_panel="Tasks")
