"""What the clients ask of the REST API, and how they read its answers. Sends nothing itself."""

import json
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from domain.errors import (
    BacklogFullError,
    BusyError,
    ConflictError,
    DrystoneError,
    InvalidError,
    NeverFitsError,
    NotFoundError,
    UnavailableError,
)
from domain.faces import MachinePage, OutputPiece, Problem
from domain.headroom import Headroom
from domain.ids import task_id_of_key
from domain.task import SubmitTask, TaskSpec
from domain.views import ClusterView, MachineView, TaskPage, TaskView

DEFAULT_URL = "http://127.0.0.1:8080"
RETRY_S_FIRST = 0.25
RETRY_S_MAX = 5.0
REQUEST_S_MAX = 30.0
BUSY_S_MAX = 60.0
"""So long a client asks again while the API takes no more (429), unless it is told otherwise."""
FRAMED = {"Accept": "application/x-ndjson"}
SHOWN_CHARS_MAX = 120
_CODES: Mapping[str, type[DrystoneError]] = {
    "not_found": NotFoundError,
    "conflict": ConflictError,
    "invalid": InvalidError,
    "busy": BusyError,
    "backlog_full": BacklogFullError,
    "unavailable": UnavailableError,
}
_AGAIN = (429, 503)

Answer = TypeVar("Answer", bound=BaseModel)
Body = SubmitTask | TaskSpec | Mapping[str, Any]


def default_url() -> str:
    """DRYSTONE_API_URL, or the `drystone up` of the default folder, or the default port."""
    given = os.environ.get("DRYSTONE_API_URL")
    if given:
        return given
    base = os.environ.get("DRYSTONE_DATA_DIR") or os.environ.get("XDG_DATA_HOME")
    folder = Path(base) if base else Path.home() / ".local" / "share"
    if not os.environ.get("DRYSTONE_DATA_DIR"):
        folder /= "drystone"
    try:
        found = json.loads((folder / "up.json").read_text())["api_url"]
    except (OSError, ValueError, KeyError, TypeError):
        return DEFAULT_URL
    return found if isinstance(found, str) else DEFAULT_URL


def api_address(url: str | None) -> str:
    """The address to ask; UnavailableError when it cannot be one."""
    address = (url or default_url()).rstrip("/")
    try:
        fits = httpx.URL(address)
    except (httpx.InvalidURL, ValueError):
        fits = httpx.URL("")
    if fits.scheme not in ("http", "https") or not fits.host:
        raise UnavailableError(
            f"the API at {address!r} cannot be reached: the address must be like {DEFAULT_URL}"
        )
    return address


@dataclass(frozen=True)
class Question(Generic[Answer]):
    """One request, and the document that answers it."""

    method: str
    path: str
    answer: type[Answer]
    query: dict[str, str] = field(default_factory=dict)
    body: str | None = None
    timeout_s: float = REQUEST_S_MAX


def submission(task: Body, key: str | None) -> Question[TaskView]:
    body = task.model_dump(mode="json") if isinstance(task, BaseModel) else dict(task)
    body.setdefault("id", task_id_of_key(key) if key else f"t-{uuid.uuid4().hex[:20]}")
    return Question("POST", "/v1/tasks", TaskView, body=json.dumps(body))


def one_task(team: str, task_id: str, wait_s: float) -> Question[TaskView]:
    query = {"wait": f"{wait_s:.3f}s"} if wait_s > 0 else {}
    path = task_path(team, task_id)
    return Question("GET", path, TaskView, query, timeout_s=REQUEST_S_MAX + wait_s)


def cancellation(team: str, task_id: str, abandon: bool) -> Question[TaskView]:
    query = {"abandon": "true"} if abandon else {}
    return Question("POST", task_path(team, task_id, "cancel"), TaskView, query)


def task_list(**filters: str | int | None) -> Question[TaskPage]:
    query = {name: str(value) for name, value in filters.items() if value is not None}
    return Question("GET", "/v1/tasks", TaskPage, query)


def part_of(team: str, task_id: str, part: str, answer: type[Answer]) -> Question[Answer]:
    return Question("GET", task_path(team, task_id, part), answer)


def fleet_headroom() -> Question[Headroom]:
    """What is free, and what it is good for."""
    return Question("GET", "/v1/headroom", Headroom)


def machine_list(cluster: str | None, cursor: str | None) -> Question[MachinePage]:
    query = {name: v for name, v in (("cluster", cluster), ("cursor", cursor)) if v}
    return Question("GET", "/v1/machines", MachinePage, query)


def cordon(cluster: str, machine: str, cordoned: bool) -> Question[MachineView]:
    word = "cordon" if cordoned else "uncordon"
    return Question("POST", _path("machines", cluster, machine, word), MachineView)


def one_cluster(name: str) -> Question[ClusterView]:
    return Question("GET", _path("clusters", name), ClusterView)


def loss(cluster: str, by: str) -> Question[ClusterView]:
    return Question("POST", _path("clusters", cluster, "confirm-lost"), ClusterView, {"by": by})


def task_path(team: str, task_id: str, *more: str) -> str:
    """Of a task or a part of it; names that are none stay one part of the path, and are refused."""
    return _path("tasks", team, task_id, *more)


def _path(*parts: str) -> str:
    # A name of dots alone would be taken for a step up by whoever tidies paths on the way.
    written = (quote(part, safe="") or "%20" for part in parts)
    return "/v1/" + "/".join(p.replace(".", "%2E") if not p.strip(".") else p for p in written)


def logs_query(stream: str, attempt: int | None, follow: bool, offset: int) -> dict[str, str]:
    query = {"stream": stream}
    query |= {"attempt": str(attempt)} if attempt is not None else {}
    query |= {"offset": str(offset)} if offset else {}
    return query | ({"follow": "true"} if follow else {})


def read_answer(answer: type[Answer], response: httpx.Response) -> Answer:
    if not response.is_success:
        raise error_of(response)
    try:
        return answer.model_validate_json(response.content)
    except ValidationError:
        raise not_ours(response) from None


def read_piece(line: str) -> OutputPiece:
    """A line of framed output; UnavailableError where the answer was cut off."""
    try:
        piece = OutputPiece.model_validate_json(line)
        piece.content  # noqa: B018 (a ValueError is also a misfit)
    except ValueError:
        raise cut_off() from None
    if piece.cut:
        raise UnavailableError(piece.cut)
    return piece


def is_framed(response: httpx.Response) -> bool:
    """Anything else is a refusal, or not of ours."""
    return response.is_success and FRAMED["Accept"] in response.headers.get("Content-Type", "")


def error_of(response: httpx.Response) -> DrystoneError:
    """The refusal that a problem document describes."""
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        return not_ours(response)
    if not problem.code:
        return not_ours(response)
    text = problem.detail or problem.title or f"status {problem.status}"
    if problem.code == "never_fits":
        return NeverFitsError(text, problem.lost)
    kind = _CODES.get(problem.code)
    if kind is None:
        kind = UnavailableError if problem.status >= 500 else InvalidError
    return kind(text)


def not_ours(response: httpx.Response) -> UnavailableError:
    """Somebody else answers at that address, or something on the way to it does."""
    said = " ".join(response.text.split())[:SHOWN_CHARS_MAX]
    return UnavailableError(
        f"what answers at {response.url} is not the API of Drystone: "
        f"status {response.status_code}, {said!r}"
    )


@dataclass
class Patience:
    """How often one question is asked again: a number of times while nobody can work (or can be
    reached), and for some seconds while the API says that it takes no more."""

    retries: int
    busy_s_max: float
    waits: Callable[[DrystoneError], None] | None = None
    """Told once, as a wait for an API that takes no more begins."""
    tries: int = 0
    busy_s: float = 0.0

    def pause_s(self, response: httpx.Response | None) -> float | None:
        """How long to wait before asking again; None: this answer, or none, is the last."""
        if response is not None and response.status_code not in _AGAIN:
            return None
        if response is not None and response.status_code == httpx.codes.TOO_MANY_REQUESTS:
            wait_s = _asked_for_s(response) or RETRY_S_FIRST
            if self.waits is not None and not self.busy_s and wait_s <= self.busy_s_max:
                self.waits(error_of(response))
            self.busy_s += wait_s
            return wait_s if self.busy_s <= self.busy_s_max else None
        if self.tries >= self.retries:
            return None
        wait_s = _asked_for_s(response) or min(RETRY_S_FIRST * 2.0**self.tries, RETRY_S_MAX)
        self.tries += 1
        return wait_s


def _asked_for_s(response: httpx.Response | None) -> float:
    asked = response.headers.get("Retry-After", "") if response is not None else ""
    return min(float(asked), RETRY_S_MAX) if asked.isdigit() else 0.0


def unreachable(url: str, error: httpx.HTTPError) -> UnavailableError:
    # Refused: nobody listens there, which mostly means that nothing was started, or elsewhere.
    hint = "; `drystone up` starts one here, --api or DRYSTONE_API_URL names another"
    return UnavailableError(
        f"the API at {url} cannot be reached: {str(error) or type(error).__name__}"
        f"{hint if isinstance(error, httpx.ConnectError) else ''}"
    )


def cut_off() -> UnavailableError:
    return UnavailableError("the output was cut off: the API, or something on the way, went away")
