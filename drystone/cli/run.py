"""`drystone run -- CMD`: submit, show the output as it comes, exit as the task did."""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Annotated, BinaryIO

import typer

from domain.attempt import Phase
from domain.errors import (
    ConflictError,
    DrystoneError,
    InvalidError,
    NeverFitsError,
    NotFoundError,
    UnavailableError,
)
from domain.views import TaskView
from drystone.cli import asked
from drystone.cli.exits import Exit
from drystone.cli.output import JsonOption, TeamOption, UrlOption, explained, fail, print_json
from drystone.client import Client
from drystone.questions import default_url

WAIT_S = 20.0
AGAIN_S = 0.5
SUBMIT_RETRIES = 3
FOLLOW_RETRIES = 10
FIRST_LOOK_S = 2.0
"""A task that waits longer than this for a machine says why."""
LOG_S_MAX = 10.0
"""How long output may still come after the task has ended."""


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
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the task's output.")] = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a command somewhere: submit it, follow its output, exit with its code.

    128 + signal when it was killed; 75 when it ended without running; 69 when the API cannot be
    reached. Ctrl-C cancels the task.
    """
    task = asked.Asked(
        command=command,
        team=team,
        environment=asked.variables(env, dict(os.environ)),
        resources={"cpu": cpu, "memory": memory, "gpu": gpu, "disk": disk},
        constraints={
            "zones": zone,
            "clusters": cluster,
            "labels": asked.labels(label),
            "tolerations": asked.tolerations(tolerate),
        },
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
    with Client(url or default_url(), retries=SUBMIT_RETRIES) as client:
        raise typer.Exit(_Run(client, quiet or as_json, as_json).execute(task))


class _Run:
    """One task, followed to its end."""

    def __init__(self, client: Client, quiet: bool, as_json: bool) -> None:
        self._client, self._quiet, self._as_json = client, quiet, as_json
        self._interrupts = 0

    def execute(self, task: asked.Asked) -> int:
        """The exit code of the command."""
        try:
            view = self._client.submit(task.body())
            # From here on there is something to lose: an API that restarts is waited for longer.
            self._client.retries = FOLLOW_RETRIES
            self._note(f"task {view.key}")
            view = self._follow(view)
        except NeverFitsError as error:
            fail(explained(error), Exit.NOT_RUN)
        except UnavailableError as error:
            fail(str(error), Exit.UNREACHABLE)
        except (InvalidError, ConflictError, NotFoundError) as error:
            fail(str(error), Exit.REFUSED)
        if self._as_json:
            print_json(view)
        self._note(_told(view))
        return exit_code(view)

    def _follow(self, view: TaskView) -> TaskView:
        signal.signal(signal.SIGINT, lambda *_: self._interrupted(view))
        readers = []
        if not self._as_json:
            for stream, out in (("stdout", sys.stdout.buffer), ("stderr", sys.stderr.buffer)):
                reader = threading.Thread(target=self._copy, args=(view, stream, out), daemon=True)
                reader.start()
                readers.append(reader)
        said = ""
        wait_s = FIRST_LOOK_S
        while not view.phase.final:
            view = self._client.get(view.id, team=view.team, wait_s=wait_s)
            wait_s = WAIT_S
            said = self._say_why(view, said)
        for reader in readers:
            reader.join(LOG_S_MAX)
        return view

    def _say_why(self, view: TaskView, said: str) -> str:
        why = ""
        if view.phase is Phase.PENDING and view.verdict is not None:
            verdict = view.verdict.verdict
            why = f"waits: {verdict.reason}" + (f" ({verdict.detail})" if verdict.detail else "")
        if why and why != said:
            self._note(why)
        return why or said

    def _copy(self, view: TaskView, stream: str, out: BinaryIO) -> None:
        # An API that stays away is the other thread's news; a reader that has left wants no more.
        with suppress(DrystoneError, BrokenPipeError):
            self._copy_attempts(view, stream, out)

    def _copy_attempts(self, view: TaskView, stream: str, out: BinaryIO) -> None:
        """One stream of every attempt, from where it broke off when the API went away."""
        number, offset = 1, 0
        while True:
            try:
                for data in self._client.logs(
                    view.id,
                    team=view.team,
                    stream=stream,
                    attempt=number,
                    follow=True,
                    offset=offset,
                ):
                    offset += len(data)
                    out.write(data)
                    out.flush()
                task = self._client.get(view.id, team=view.team)
            except UnavailableError:
                task = self._client.get(view.id, team=view.team)
                if task.phase.final:
                    self._note(f"some of {stream} may be missing")
                    return
                time.sleep(AGAIN_S)
                continue
            if task.phase.final and task.number <= number:
                return
            number, offset = number + 1, 0

    def _interrupted(self, view: TaskView) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            os._exit(Exit.INTERRUPTED)
        self._note("cancelling (Ctrl-C again to leave it)")
        threading.Thread(
            target=self._client.cancel, args=(view.id,), kwargs={"team": view.team}, daemon=True
        ).start()

    def _note(self, line: str) -> None:
        if not self._quiet and line:
            print(f"drystone: {line}", file=sys.stderr, flush=True)


def exit_code(view: TaskView) -> int:
    """As the task's own: its exit code (128 + signal), or NOT_RUN when it has none."""
    outcome = view.outcome
    if view.phase is Phase.SUCCEEDED:
        return Exit.OK
    if outcome is None or outcome.exit_code is None:
        return Exit.NOT_RUN
    return outcome.exit_code or Exit.FAILED


def _told(view: TaskView) -> str:
    if view.phase is Phase.SUCCEEDED or view.outcome is None:
        return ""
    words = [view.phase.value.lower(), view.outcome.reason or "", view.outcome.detail]
    return ", ".join(word for word in words if word)


def add_run(app: typer.Typer) -> None:
    """Add this command."""
    settings = {"allow_interspersed_args": False}
    app.command(context_settings=settings, rich_help_panel="Tasks")(run)
