"""What people may say about a task, made a submission. What it means is checked by the API."""

import json
import re
import uuid
from dataclasses import dataclass, field
from typing import Annotated, Any, NoReturn

import typer

from domain.misfit import given
from domain.once import repeated_key
from drystone.cli.exits import Exit
from drystone.cli.output import fail

CpuOption = Annotated[str | None, typer.Option("--cpu", help="Cores: 2, 500m; else 1.")]
MemoryOption = Annotated[str | None, typer.Option("--memory", "-m", help="1Gi, 256Mi; else 512Mi.")]
GpuOption = Annotated[int | None, typer.Option("--gpu", help="Whole devices.")]
DiskOption = Annotated[str | None, typer.Option("--disk", help="10Gi.")]
EnvOption = Annotated[
    list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE, or NAME to pass yours on.")
]
PriorityOption = Annotated[
    str | None,
    typer.Option(
        "--priority", "-p", help="CRITICAL, HIGH, NORMAL (if left out), LOW, PREEMPTIBLE."
    ),
]
RetriesOption = Annotated[
    int | None, typer.Option("--retries", help="How often a failure is tried again; else 0.")
]
TimeoutOption = Annotated[
    int | None, typer.Option("--timeout", help="Seconds one attempt may run.")
]
QueueTimeoutOption = Annotated[
    int | None, typer.Option("--queue-timeout", help="Seconds it may wait for a machine.")
]
GraceOption = Annotated[
    int | None, typer.Option("--grace", help="Seconds between stop signal and kill; else 30.")
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
    typer.Option("--on-loss", help="replace_after_fence (if left out), wait, replace_at_once."),
]
FolderOption = Annotated[
    str | None,
    typer.Option(
        "--workdir",
        "-w",
        help="Where it runs; made where it is missing. Relative: inside the attempt's own folder.",
    ),
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
        """The submission, with an id where none was given; a word that is no text ends it here."""
        for place, word in enumerate(self.command, 1):
            _check_text(f"word {place} of the command", word)
        for name, value in self.environment.items():
            _check_text(f"--env {name!r}", name + value)
        body: dict[str, Any] = {"team": self.team, "command": self.command, "id": fresh_id()}
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


def places(
    zones: list[str] | None,
    clusters: list[str] | None,
    written_labels: list[str] | None,
    tolerated: list[str] | None,
) -> dict[str, Any]:
    """Where it may run."""
    return {
        "zones": zones,
        "clusters": clusters,
        "labels": labels(written_labels),
        "tolerations": tolerations(tolerated),
    }


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


def fresh_id() -> str:
    """Made here and not by the API: what becomes of a submission can be asked by it."""
    return f"t-{uuid.uuid4().hex[:20]}"


def _check_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        fail(f"{what} is not UTF-8: a task is sent as text", Exit.USAGE)


_IN_A_LIST = re.compile(r"\[(\d+)\]\.(.*)", re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """A submission of a file, and where it stands there: `tasks.jsonl, line 3`."""

    place: str
    body: dict[str, Any]


def read_entries(file: str, text: str) -> list[Entry]:
    """Submissions from JSON (an object or a list) or from one object a line; ids where none are."""
    entries = _entries(file, text)
    if not entries:
        fail(f"{file}: there is no task in it", Exit.USAGE)
    for entry in entries:
        if entry.body.get("id") is None:
            entry.body["id"] = fresh_id()
    return entries


def _entries(file: str, text: str) -> list[Entry]:
    try:
        whole, twice = _read(text)
    except (ValueError, RecursionError) as error:
        first = next((line for line in text.splitlines() if line.strip()), "")
        if text.strip() and not _is_json(first):
            # Not one object a line either: the fault of the whole is the one to tell.
            fail(f"{file}: not JSON: {error}", Exit.USAGE)
        return _lines(file, text)
    tasks = whole if isinstance(whole, list) else [whole]
    places = [f"{file}, task {n} of {len(tasks)}" for n, _ in enumerate(tasks, 1)]
    if len(tasks) == 1:
        places = [file]
    if within := _IN_A_LIST.fullmatch(twice):
        _fail_twice(places[int(within[1])], within[2])
    if twice:
        _fail_twice(file, twice)
    return [_entry(place, task) for place, task in zip(places, tasks, strict=True)]


def _lines(file: str, text: str) -> list[Entry]:
    found = []
    # Not splitlines(), which also ends a line at characters that may stand in a JSON text.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{file}, line {number}"
        try:
            task, twice = _read(line)
        except (ValueError, RecursionError) as error:
            fail(f"{place}: not JSON: {error}", Exit.USAGE)
        if twice:
            _fail_twice(place, twice)
        found.append(_entry(place, task))
    return found


def _entry(place: str, task: Any) -> Entry:
    if not isinstance(task, dict):
        fail(f"{place}: must be an object, not {given(task)}", Exit.USAGE)
    return Entry(place, task)


def _fail_twice(place: str, key: str) -> NoReturn:
    fail(f"{place}: {key}: stands twice, and only one can be meant", Exit.USAGE)


def _is_json(text: str) -> bool:
    try:
        _read(text)
    except (ValueError, RecursionError):
        return False
    return True


def _read(text: str) -> tuple[Any, str]:
    """What it says, and the way to a key that stands twice."""
    return json.loads(text), repeated_key(text)
