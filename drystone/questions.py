"""What the clients ask of the REST API, and how they read its answers. Sends nothing itself."""

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from domain.errors import (
    ConflictError,
    DrystoneError,
    InvalidError,
    NeverFitsError,
    NotFoundError,
    UnavailableError,
)
from domain.faces import MachinePage, Problem
from domain.ids import task_id_of_key
from domain.task import SubmitTask, TaskSpec
from domain.views import ClusterView, MachineView, TaskPage, TaskView

DEFAULT_URL = "http://127.0.0.1:8080"
RETRY_S_FIRST = 0.25
RETRY_S_MAX = 5.0
REQUEST_S_MAX = 30.0
_CODES: Mapping[str, type[DrystoneError]] = {
    "not_found": NotFoundError,
    "conflict": ConflictError,
    "invalid": InvalidError,
    "unavailable": UnavailableError,
}

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
    path = f"/v1/tasks/{team}/{task_id}"
    return Question("GET", path, TaskView, query, timeout_s=REQUEST_S_MAX + wait_s)


def cancellation(team: str, task_id: str, abandon: bool) -> Question[TaskView]:
    query = {"abandon": "true"} if abandon else {}
    return Question("POST", f"/v1/tasks/{team}/{task_id}/cancel", TaskView, query)


def task_list(**filters: str | int | None) -> Question[TaskPage]:
    query = {name: str(value) for name, value in filters.items() if value is not None}
    return Question("GET", "/v1/tasks", TaskPage, query)


def part_of(team: str, task_id: str, part: str, answer: type[Answer]) -> Question[Answer]:
    return Question("GET", f"/v1/tasks/{team}/{task_id}/{part}", answer)


def machine_list(cluster: str | None, cursor: str | None) -> Question[MachinePage]:
    query = {name: v for name, v in (("cluster", cluster), ("cursor", cursor)) if v}
    return Question("GET", "/v1/machines", MachinePage, query)


def cordon(cluster: str, machine: str, cordoned: bool) -> Question[MachineView]:
    word = "cordon" if cordoned else "uncordon"
    return Question("POST", f"/v1/machines/{cluster}/{machine}/{word}", MachineView)


def loss(cluster: str, by: str) -> Question[ClusterView]:
    return Question("POST", f"/v1/clusters/{cluster}/confirm-lost", ClusterView, {"by": by})


def logs_query(stream: str, attempt: int | None, follow: bool, offset: int) -> dict[str, str]:
    query = {"stream": stream}
    query |= {"attempt": str(attempt)} if attempt is not None else {}
    query |= {"offset": str(offset)} if offset else {}
    return query | ({"follow": "true"} if follow else {})


def read_answer(answer: type[Answer], response: httpx.Response) -> Answer:
    if response.is_success:
        return answer.model_validate_json(response.content)
    raise error_of(response)


def error_of(response: httpx.Response) -> DrystoneError:
    """The refusal that a problem document describes."""
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        problem = Problem(status=response.status_code, detail=response.text[:200], code="")
    text = problem.detail or problem.title or f"status {problem.status}"
    if problem.code == "never_fits":
        return NeverFitsError(text, problem.lost)
    kind = _CODES.get(problem.code)
    if kind is None:
        kind = UnavailableError if problem.status >= 500 else InvalidError
    return kind(text)


def pause_s(tries: int, response: httpx.Response | None) -> float:
    asked = response.headers.get("Retry-After", "") if response is not None else ""
    if asked.isdigit():
        return min(float(asked), RETRY_S_MAX)
    return min(RETRY_S_FIRST * 2.0**tries, RETRY_S_MAX)


def unreachable(url: str, error: httpx.HTTPError) -> UnavailableError:
    return UnavailableError(
        f"the API at {url} cannot be reached: {str(error) or type(error).__name__}"
    )
