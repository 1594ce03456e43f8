"""What people may say about a task, made a submission. Checks nothing: the API does."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from drystone.cli.exits import Exit
from drystone.cli.output import fail

CpuOption = Annotated[str | None, typer.Option("--cpu", help="Cores: 2, 500m.")]
MemoryOption = Annotated[str | None, typer.Option("--memory", "-m", help="1Gi, 512Mi.")]
GpuOption = Annotated[int | None, typer.Option("--gpu", help="Whole devices.")]
DiskOption = Annotated[str | None, typer.Option("--disk", help="10Gi.")]
EnvOption = Annotated[
    list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE, or NAME to pass yours on.")
]
PriorityOption = Annotated[
    str | None,
    typer.Option("--priority", "-p", help="CRITICAL, HIGH, NORMAL, LOW or PREEMPTIBLE."),
]
RetriesOption = Annotated[
    int | None, typer.Option("--retries", help="How often a failure is tried again.")
]
TimeoutOption = Annotated[
    int | None, typer.Option("--timeout", help="Seconds one attempt may run.")
]
QueueTimeoutOption = Annotated[
    int | None, typer.Option("--queue-timeout", help="Seconds it may wait for a machine.")
]
GraceOption = Annotated[
    int | None, typer.Option("--grace", help="Seconds between the stop signal and the kill.")
]
ZoneOption = Annotated[list[str] | None, typer.Option("--zone", help="Only in this zone.")]
ClusterOption = Annotated[list[str] | None, typer.Option("--cluster", help="Only there.")]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", help="Only on machines with KEY=VALUE.")
]
TolerateOption = Annotated[
    list[str] | None, typer.Option("--tolerate", help="A taint to put up with: KEY or KEY=VALUE.")
]
IdOption = Annotated[
    str | None, typer.Option("--id", help="Its name: submitting it twice makes one task.")
]
OnLossOption = Annotated[
    str | None,
    typer.Option("--on-loss", help="replace_after_fence, wait or replace_at_once."),
]
FolderOption = Annotated[
    str | None, typer.Option("--workdir", "-w", help="Where it runs; else a fresh folder.")
]


@dataclass(frozen=True)
class Asked:
    """Options as given; None = not given, so that the API's default counts."""

    command: list[str]
    team: str
    environment: dict[str, str]
    resources: dict[str, Any] = field(default_factory=dict)
    constraints: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    retries: int | None = None

    def body(self) -> dict[str, Any]:
        """The submission."""
        body: dict[str, Any] = {"team": self.team, "command": self.command}
        body |= {"env": self.environment} if self.environment else {}
        resources = {name: value for name, value in self.resources.items() if value is not None}
        body |= {"resources": resources} if resources else {}
        rules = {name: value for name, value in self.constraints.items() if value}
        body |= {"constraints": rules} if rules else {}
        body |= {"retries": {"failures": self.retries}} if self.retries is not None else {}
        return body | {name: value for name, value in self.fields.items() if value is not None}


def variables(written: list[str] | None, own: dict[str, str]) -> dict[str, str]:
    """`NAME=VALUE` words; a bare NAME takes the value from `own`."""
    found: dict[str, str] = {}
    for word in written or []:
        name, there, value = word.partition("=")
        if there:
            found[name] = value
        elif name in own:
            found[name] = own[name]
        else:
            fail(f"--env {name}: you have no such variable; give NAME=VALUE", Exit.USAGE)
    return found


def labels(written: list[str] | None) -> list[dict[str, Any]]:
    """`KEY=VALUE` words as conditions; a bare KEY must only be there."""
    terms: list[dict[str, Any]] = []
    for word in written or []:
        key, there, value = word.partition("=")
        terms.append(
            {"key": key, "values": [value]} if there else {"key": key, "operator": "exists"}
        )
    return terms


def tolerations(written: list[str] | None) -> list[dict[str, Any]]:
    """`KEY` or `KEY=VALUE` words."""
    split = [word.partition("=") for word in written or []]
    return [{"key": key, "value": value if there else None} for key, there, value in split]


def read_file(path: Path, text: str) -> list[dict[str, Any]]:
    """Submissions from JSON (an object or a list) or from one object a line."""
    try:
        whole = json.loads(text)
    except ValueError:
        return _lines(path, text)
    tasks = whole if isinstance(whole, list) else [whole]
    wrong = next((i for i, task in enumerate(tasks, 1) if not isinstance(task, dict)), None)
    if wrong is not None:
        fail(f"{path}: entry {wrong} is not an object", Exit.REFUSED)
    return tasks


def _lines(path: Path, text: str) -> list[dict[str, Any]]:
    tasks = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            task = json.loads(line)
        except ValueError as error:
            fail(f"{path}, line {number}: not JSON: {error}", Exit.REFUSED)
        if not isinstance(task, dict):
            fail(f"{path}, line {number}: not an object", Exit.REFUSED)
        tasks.append(task)
    return tasks
