"""`drystone run -- CMD`: submit, show the output as it comes, exit as the task did."""

import os
import signal
import sys
import threading
from typing import Annotated, Any

import typer

from domain.attempt import Phase
from domain.errors import DrystoneError, UnavailableError
from domain.reasons import Reason
from domain.views import TaskView
from drystone.cli import asked
from drystone.cli.exits import Exit
from drystone.cli.following import FOLLOW_RETRIES, Copying, Follower
from drystone.cli.output import (
    JsonOption,
    TeamOption,
    UrlOption,
    asking,
    exit_of,
    explained,
    fail,
    note,
    print_json,
)
from drystone.client import Client

WAIT_S = 20.0
FIRST_LOOK_S = 2.0
"""A task that waits longer than this for a machine says why."""
LOG_S_MAX = 10.0
"""How long output may still come after the task has ended."""
_TOLD_BY_THE_CODE = (Reason.NONZERO_EXIT, Reason.KILLED_BY_SIGNAL)


def run(
    command: Annotated[list[str], typer.Argument(help="The command and its words.")],
    cpu: asked.CpuOption = None,
    memory: asked.MemoryOption = None,
    gpu: asked.GpuOption = None,
    disk: asked.DiskOption = None,
    env: asked.EnvOption = None,
    team: TeamOption = "default",
    task_id: asked.IdOption = None,
    priority: asked.PriorityOption = None,
    retries: asked.RetriesOption = None,
    timeout: asked.TimeoutOption = None,
    queue_timeout: asked.QueueTimeoutOption = None,
    grace: asked.GraceOption = None,
    zone: asked.ZoneOption = None,
    cluster: asked.ClusterOption = None,
    label: asked.LabelOption = None,
    tolerate: asked.TolerateOption = None,
    workdir: asked.FolderOption = None,
    on_loss: asked.OnLossOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print its name, and leave it to itself.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Only the task's output, and errors.")
    ] = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a command somewhere: submit it, follow its output, exit with its code.

    128 + signal when it was killed; 75 when it never ran: no machine could ever hold it, it ended
    while it waited, or it could not be started (no such command: a shell would say 127); 2 an
    option does not fit; 65 --id stands for another task; 69 the API cannot be reached; 71 it takes
    no more for now; 130 Ctrl-C, which cancels the task.
    """
    task = asked.Asked(
        command=command,
        team=team,
        environment=asked.variables(env, dict(os.environ)),
        resources={"cpu": cpu, "memory": memory, "gpu": gpu, "disk": disk},
        constraints=asked.places(zone, cluster, label, tolerate),
        fields={
            "id": task_id,
            "priority": priority,
            "run_timeout_s": timeout,
            "queue_timeout_s": queue_timeout,
            "grace_s": grace,
            "working_dir": workdir,
            "on_loss": on_loss,
        },
        retries=retries,
    )
    with asking(url) as client:
        if detach:
            view = client.submit(task.body())
            print_json(view) if as_json else print(view.key)
            return
        raise typer.Exit(_Run(client, quiet or as_json, as_json).execute(task.body()))


class _Run:
    """One task, followed to its end."""

    def __init__(self, client: Client, quiet: bool, as_json: bool) -> None:
        self._client, self._quiet, self._as_json = client, quiet, as_json
        self._signal: int | None = None
        self._cancelling: threading.Thread | None = None

    def execute(self, body: dict[str, Any]) -> int:
        """The exit code of the command."""
        key = f"{body['team']}/{body['id']}"
        try:
            view = self._client.submit(body)
            # From here on there is something to lose: an API that restarts is waited for longer.
            self._client.retries = FOLLOW_RETRIES
            self._note(f"task {key}")
            view = self._follow(view)
        except KeyboardInterrupt:
            fail(f"interrupted: {key} may have been accepted, and then goes on", Exit.INTERRUPTED)
        except UnavailableError as error:
            known = f"; {key} may go on: drystone tasks get {key}"
            fail(
                f"{error}{known if self._client.retries == FOLLOW_RETRIES else ''}", exit_of(error)
            )
        except DrystoneError as error:
            fail(explained(error), exit_of(error))
        if self._as_json:
            print_json(view)
        if not self._quiet or _is_news(view):
            self._say(told(view))
        return exit_code(view) if self._signal is None else 128 + self._signal

    def _follow(self, view: TaskView) -> TaskView:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda given, _frame: self._interrupted(view, given))
        readers = [] if self._as_json else self._readers(view)
        said = ""
        wait_s = FIRST_LOOK_S
        while not view.phase.final:
            view = self._client.get(view.id, team=view.team, wait_s=wait_s)
            wait_s = WAIT_S
            said = self._say_why(view, said)
        for reader in readers:
            reader.join(LOG_S_MAX)
            if reader.is_alive():
                self._say(f"some output may be missing: it did not end within {LOG_S_MAX:.0f} s")
            elif isinstance(reader.error, DrystoneError):
                self._say(f"some output may be missing: {reader.error}")
        return view

    def _readers(self, view: TaskView) -> list[Copying]:
        follower = Follower(
            self._client,
            view.team,
            view.id,
            tell=self._note,
            warn=self._say,
            left=lambda: self._left(view),
        )
        streams = (("stdout", sys.stdout.buffer), ("stderr", sys.stderr.buffer))
        return [follower.start(stream, out) for stream, out in streams]

    def _say_why(self, view: TaskView, said: str) -> str:
        why = ""
        if view.phase is Phase.PENDING and view.verdict is not None:
            verdict = view.verdict.verdict
            why = f"waits: {verdict.reason}" + (f" ({verdict.detail})" if verdict.detail else "")
        if why and why != said:
            self._note(why)
        return why or said

    def _left(self, view: TaskView) -> None:
        """As a local command would end here; but a task is more than its output."""
        self._say(f"nobody reads its output any more: {view.key} goes on without this command")
        # Not by way of the interpreter's end, which would write to the closed pipe once more.
        os._exit(128 + signal.SIGPIPE)

    def _interrupted(self, view: TaskView, number: int) -> None:
        if self._signal is not None:
            self._say(f"{view.key} may go on: drystone tasks get {view.key}")
            os._exit(128 + self._signal)
        self._signal = number
        self._say(f"cancelling {view.key} (Ctrl-C again to leave it to itself)")
        threading.Thread(target=self._cancel, args=(view,), daemon=True).start()

    def _cancel(self, view: TaskView) -> None:
        try:
            self._client.cancel(view.id, team=view.team)
        except DrystoneError as error:
            self._say(f"{view.key} could not be cancelled and may go on: {error}")

    def _note(self, line: str) -> None:
        if not self._quiet:
            self._say(line)

    def _say(self, line: str) -> None:
        """Errors are never quiet."""
        if line:
            note(line)


def exit_code(view: TaskView) -> int:
    """As the task's own: its exit code (128 + signal), or NOT_RUN when it has none."""
    outcome = view.outcome
    if view.phase is Phase.SUCCEEDED:
        return Exit.OK
    if outcome is None or outcome.exit_code is None:
        return Exit.NOT_RUN
    return outcome.exit_code or Exit.FAILED


def told(view: TaskView) -> str:
    """How it ended, where that is not plain success."""
    outcome = view.outcome
    if view.phase is Phase.SUCCEEDED or outcome is None:
        return ""
    code = "" if outcome.exit_code is None else f"exit code {outcome.exit_code}"
    limit = view.spec.run_timeout_s if outcome.reason is Reason.RUN_TIMEOUT else None
    bound = "" if limit is None else f"longer than {limit} s"
    words = [outcome.reason or "", bound, code, outcome.detail]
    return f"{view.key} {view.phase.value.lower()}: {', '.join(word for word in words if word)}"


def _is_news(view: TaskView) -> bool:
    """The exit code alone would not tell it: it never ran, or it was ended from outside."""
    outcome = view.outcome
    return outcome is not None and (
        outcome.exit_code is None or outcome.reason not in (None, *_TOLD_BY_THE_CODE)
    )


def add_run(app: typer.Typer) -> None:
    """Add this command."""
    settings = {"allow_interspersed_args": False}
    app.command(context_settings=settings, rich_help_panel="Tasks")(run)
