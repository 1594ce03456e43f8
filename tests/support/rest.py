"""The REST API as a test uses it: submit, look, wait for an end, tell the story as text."""

from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import httpx

from tests.support.fleet import wait_until

END_S_MAX = 60
ANSWER_S_MAX = 70
SMALL = {"cpu": "100m", "memory": "16Mi"}


@dataclass
class Rest:
    """One client of one Drystone; tasks belong to a team of their own."""

    url: str
    team: str = field(default_factory=lambda: f"team-{uuid4().hex[:6]}")

    def __post_init__(self) -> None:
        self.http = httpx.Client(base_url=self.url, timeout=ANSWER_S_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.http.close()

    def submit(self, name: str, *command: str, **body: Any) -> str:
        """A task that must be accepted; its path below /v1/tasks."""
        given = {"team": self.team, "id": name, "command": command, "resources": SMALL, **body}
        answer = self.http.post("/v1/tasks", json=given)
        assert answer.status_code == 201, answer.text
        return f"{given['team']}/{name}"

    def task(self, key: str) -> dict[str, Any]:
        """Where it stands."""
        return self._get(f"/v1/tasks/{key}")

    def cancel(self, key: str) -> None:
        """Ask for its end."""
        answer = self.http.post(f"/v1/tasks/{key}/cancel")
        assert answer.is_success, answer.text

    def until(self, key: str, phase: str, seconds: float = END_S_MAX) -> dict[str, Any]:
        """The task once it is in this phase."""
        wait_until(lambda: self.task(key)["phase"] == phase, f"{key} is {phase}", seconds)
        return self.task(key)

    def ended(self, key: str, seconds: float = END_S_MAX) -> dict[str, Any]:
        """The task once it is final."""
        wait_until(
            lambda: self._get(f"/v1/tasks/{key}?wait=5s")["ended_at"] is not None,
            f"{key} ends",
            seconds,
        )
        return self.task(key)

    def attempts(self, key: str) -> list[dict[str, Any]]:
        """Its attempts, oldest first."""
        return list(self._get(f"/v1/tasks/{key}/attempts")["items"])

    def logs(self, key: str, **query: Any) -> str:
        """What it has written."""
        answer = self.http.get(f"/v1/tasks/{key}/logs", params=query)
        assert answer.status_code == 200, answer.text
        return answer.text

    def story(self, key: str) -> str:
        """Its events, one a line: `kind #number detail`."""
        events = self._get(f"/v1/tasks/{key}/events")["items"]
        lines = (f"{e['kind']} #{e['number']} {e['detail']}".rstrip() for e in events)
        return "\n".join(lines) + "\n"

    def _get(self, path: str) -> dict[str, Any]:
        answer = self.http.get(path)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        return dict(answer.json())
