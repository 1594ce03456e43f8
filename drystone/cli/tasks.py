"""`drystone tasks ...`: list, get, logs, cancel, explain, events, attempts."""

import sys
from typing import Annotated

import typer

from domain.faces import Explanation
from domain.reasons import Reason
from domain.views import AttemptView, TaskView
from drystone.cli.exits import Exit
from drystone.cli.output import (
    JsonOption,
    TeamOption,
    UrlOption,
    age,
    asking,
    fail,
    print_facts,
    print_json,
    print_table,
)

tasks = typer.Typer(help="Look at tasks and end them.", no_args_is_help=True)

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
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait for its end.")] = 0,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Where one task stands."""
    team, task_id = _named(task, team)
    with asking(url) as client:
        view = client.get(task_id, team=team, wait_s=wait)
        attempts = client.attempts(task_id, team=team).items
    if as_json:
        print_json(view)
        return
    print_facts(_facts(view))
    if attempts:
        print()
        print_table(
            ["ATTEMPT", "WHERE", "STARTED", "ENDED", "HOW"], [_attempt(a) for a in attempts], ""
        )


@tasks.command()
def logs(
    task: TaskId,
    team: TeamOption = "default",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the task ends.")] = False,
    attempt: Annotated[int | None, typer.Option("--attempt", "-a", help="Else the latest.")] = None,
    stream: Annotated[str, typer.Option("--stream", help="stdout, stderr or both.")] = "both",
    url: UrlOption = None,
) -> None:
    """The output of a task."""
    team, task_id = _named(task, team)
    with asking(url) as client:
        for data in client.logs(task_id, team=team, follow=follow, attempt=attempt, stream=stream):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


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
    """Ask tasks to end."""
    ended: list[TaskView] = []
    with asking(url) as client:
        for task in named:
            of_team, task_id = _named(task, team)
            ended.append(client.cancel(task_id, team=of_team, abandon=abandon))
    if as_json:
        print_json(ended)
        return
    for view in ended:
        print(f"{view.key}: {view.phase.value if view.phase.final else 'told to end'}")


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
    columns = ["ATTEMPT", "WHERE", "STARTED", "ENDED", "HOW"]
    print_table(columns, [_attempt(a) for a in page.items], "no attempts")


def _named(task: str, team: str) -> tuple[str, str]:
    first, slash, second = task.partition("/")
    if slash and not (first and second):
        fail(f"{task} names no task: give ID or TEAM/ID", Exit.USAGE)
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
        return ", ".join(word for word in (code, _spoken(task.outcome.reason)) if word)
    return _spoken(task.verdict.verdict.reason) if task.verdict else ""


def _facts(view: TaskView) -> list[tuple[str, object]]:
    spec = view.spec
    return [
        ("task", view.key),
        ("phase", view.phase.value),
        ("why", _why(view)),
        ("detail", view.outcome.detail if view.outcome else ""),
        ("priority", spec.priority.name),
        ("command", " ".join(spec.command)[:200]),
        ("asks", ", ".join(f"{n} {v}" for n, v in spec.resources.model_dump().items() if v)),
        ("where", f"{view.cluster}/{view.machine}" if view.machine else ""),
        ("attempt", view.number or ""),
        ("submitted", view.enqueued_at),
        ("ended", view.ended_at),
    ]


def _attempt(attempt: AttemptView) -> tuple[object, ...]:
    ending = attempt.ending
    how = ""
    if ending is not None:
        code = "" if ending.exit_code is None else str(ending.exit_code)
        words = (ending.kind.value, code, _spoken(ending.reason), ending.detail)
        how = " ".join(word for word in words if word)
    place = f"{attempt.cluster}/{attempt.machine}"
    return (attempt.number, place, attempt.started_at, attempt.ended_at, how)


def _print_explanation(told: Explanation) -> None:
    print(f"{told.team}/{told.id} is {told.phase.value}. {told.summary}")
    if told.nearest_miss:
        print(f"nearest miss: {told.nearest_miss}")
    if told.verdict and told.verdict.verdict.lost:
        print()
        lost = sorted(told.verdict.verdict.lost.items(), key=lambda item: -item[1])
        print_table(["MACHINES", "LOST TO"], [(n, _spoken(reason)) for reason, n in lost], "")
    if told.history:
        print()
        rows = [(v.at, _spoken(v.verdict.reason), v.verdict.detail) for v in told.history]
        print_table(["SINCE", "WHY IT WAITED", "NEAREST MISS"], rows, "")


def _spoken(reason: Reason | None) -> str:
    return "" if reason is None else reason.value.replace("_", " ")


def add_tasks(app: typer.Typer) -> None:
    """Add this family."""
    app.add_typer(tasks, name="tasks", rich_help_panel="Tasks")
