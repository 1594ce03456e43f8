"""/v1/tasks: list, look at, wait for, cancel, explain. Reads the ledger; asks workflows."""

import re
import time
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BeforeValidator

from api.parts import KeyOf, Parts, PartsOf
from api.schema import refusals
from api.starts import with_start
from domain.attempt import Phase
from domain.errors import InvalidError, NotFoundError
from domain.faces import AttemptPage, EventPage, Explanation
from domain.ids import Name, TaskKey, TeamName
from domain.misfit import given
from domain.priority import Band
from domain.reasons import Reason
from domain.views import AttemptView, TaskPage, TaskView
from store import tasks
from store.waits import verdict_history

CURSOR_CHARS_MAX = 500
PAGE_ROWS = 100
PAGE_ROWS_MAX = 1_000
ASK_AGAIN_S = 0.25
GONE_TOLD_EVERY_S = 0.5
GONE_TOLD_MAX = 16
EVENTS_EXPLAINED = 20

_WAIT = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s|m|)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}

router = APIRouter(tags=["tasks"])


def _seconds(written: object) -> object:
    match = _WAIT.fullmatch(str(written))
    if match is None:
        raise ValueError(f"must be a time such as 30s, 500ms or 1m, not {given(written)}")
    return float(match[1]) * _UNIT_S[match[2]]


def _band(written: object) -> object:
    name = str(written).upper()
    if name not in Band.__members__:
        raise ValueError(f"must be one of {', '.join(Band.__members__)}, not {given(written)}")
    return Band[name]


Wait = Annotated[
    float,
    BeforeValidator(_seconds, json_schema_input_type=str),
    Query(description="Answer when the task has ended, at the latest after this time."),
]
BandName = Annotated[Band, BeforeValidator(_band, json_schema_input_type=str)]


@router.get("/v1/tasks", response_model=TaskPage, responses=refusals(422, 503))
async def list_tasks(
    parts: PartsOf,
    team: Annotated[TeamName | None, Query()] = None,
    phase: Annotated[Phase | None, Query()] = None,
    cluster: Annotated[Name | None, Query()] = None,
    priority: Annotated[BandName | None, Query()] = None,
    cursor: Annotated[str | None, Query(max_length=CURSOR_CHARS_MAX)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = PAGE_ROWS,
) -> Response:
    """One page of tasks, newest first."""
    page = await parts.ledger.read(
        tasks.tasks,
        team=team,
        phase=phase,
        cluster=cluster,
        priority=None if priority is None else int(priority),
        cursor=cursor,
        limit=limit,
    )
    return _json(page)


@router.get("/v1/tasks/{team}/{task}", response_model=TaskView, responses=refusals(404, 422, 503))
async def get_task(key: KeyOf, parts: PartsOf, wait: Wait = 0.0) -> Response:
    """Where the task stands."""
    longest_s = parts.settings.wait_s_max
    if wait > longest_s:
        raise InvalidError(f"wait: must be at most {longest_s:.0f}s")
    view = await find(parts, key)
    deadline = time.monotonic() + wait
    while not (view.phase.final or parts.closing.begun):
        asked_at = time.monotonic()
        left_s = deadline - asked_at
        if left_s <= 0:
            break
        await parts.closing.first(parts.gateway.until_ended(key, left_s))
        view = await find(parts, key)
        early_s = asked_at + ASK_AGAIN_S - time.monotonic()
        if not view.phase.final and early_s > 0:
            # Temporal could not say: the row is looked at now and then instead.
            await parts.closing.sleep(min(early_s, left_s))
    return _json(view)


@router.post(
    "/v1/tasks/{team}/{task}/cancel",
    status_code=202,
    response_model=TaskView,
    responses={
        200: {"model": TaskView, "description": "It had ended already."},
        **refusals(404, 422, 503),
    },
)
async def cancel_task(key: KeyOf, parts: PartsOf, abandon: bool = False) -> Response:
    """Ask for its end; `abandon` closes it even where it may still run (as `may_still_run`)."""
    view = await find(parts, key)
    if view.phase.final:
        return _json(view)
    if not await parts.gateway.cancel(key, abandon=abandon, by="api"):
        await _close_gone(parts, key)
    return _json(await find(parts, key), 202)


@router.get(
    "/v1/tasks/{team}/{task}/attempts",
    response_model=AttemptPage,
    responses=refusals(404, 422, 503),
)
async def list_attempts(key: KeyOf, parts: PartsOf) -> Response:
    """Its attempts, oldest first."""
    await find(parts, key)
    found: tuple[AttemptView, ...] = await parts.ledger.read(tasks.attempts, key)
    last = [await with_start(parts, key, attempt) for attempt in found[-1:]]
    return _json(AttemptPage(items=(*found[:-1], *last)))


@router.get(
    "/v1/tasks/{team}/{task}/events", response_model=EventPage, responses=refusals(404, 422, 503)
)
async def list_events(key: KeyOf, parts: PartsOf) -> Response:
    """Its newest events, oldest first."""
    await find(parts, key)
    return _json(EventPage(items=tuple(await parts.ledger.read(tasks.events, key))))


@router.get(
    "/v1/tasks/{team}/{task}/explain",
    response_model=Explanation,
    responses=refusals(404, 422, 503),
)
async def explain_task(key: KeyOf, parts: PartsOf) -> Response:
    """Why it stands where it stands: machines lost per reason, and the nearest miss."""
    view = await find(parts, key)
    events = tuple(await parts.ledger.read(tasks.events, key))
    history = tuple(await parts.ledger.read(verdict_history, key))
    return _json(
        Explanation(
            team=view.team,
            id=view.id,
            phase=view.phase,
            summary=in_words(view),
            verdict=view.verdict,
            history=history,
            nearest_miss=view.verdict.verdict.detail if view.verdict else "",
            events=events[-EVENTS_EXPLAINED:],
        )
    )


async def _close_gone(parts: Parts, key: TaskKey) -> None:
    """Its workflow was terminated: placement is told until the row says that it has heard.

    For some seconds after it was enqueued, a row is held to have a workflow whatever we say.
    """
    for _ in range(GONE_TOLD_MAX):
        await parts.gateway.gone(key)
        await parts.closing.sleep(GONE_TOLD_EVERY_S)
        view = await find(parts, key)
        if view.phase.final or view.phase is Phase.STOPPING or parts.closing.begun:
            return


async def find(parts: Parts, key: TaskKey) -> TaskView:
    """The row, or what was submitted where the row is still to be written; else NotFoundError."""
    view = await parts.ledger.read(tasks.task, key)
    if view is None:
        view = await parts.gateway.submitted(key)
    if view is None:
        raise NotFoundError(f"there is no task {key}")
    return view


def in_words(view: TaskView) -> str:
    """One sentence about where a task stands."""
    place = f"on machine {view.machine} of cluster {view.cluster}" if view.machine else ""
    match view.phase:
        case Phase.PENDING if view.verdict is None and view.number > 0:
            since = view.not_before.isoformat(timespec="seconds")
            return f"Attempt {view.number} has ended; the next one waits until {since} at least."
        case Phase.PENDING if view.verdict is None:
            return "It waits; no round has looked at it yet."
        case Phase.PENDING:
            return f"It waits: {_lost(view)}"
        case Phase.OFFERED:
            return f"Attempt {view.number} has been offered a place {place}."
        case Phase.RUNNING:
            return f"Attempt {view.number} runs {place}."
        case Phase.STOPPING:
            return f"Attempt {view.number} {place} has been told to stop."
        case _:
            return f"It has ended: {_ending(view)}"


def _lost(view: TaskView) -> str:
    assert view.verdict is not None
    verdict = view.verdict.verdict
    if not verdict.lost:
        return f"{_spoken(verdict.reason)}."
    lost = ", ".join(
        f"{count} {_spoken(reason)}"
        for reason, count in sorted(verdict.lost.items(), key=lambda item: -item[1])
    )
    return f"of {verdict.machines} machines, {lost}."


def _ending(view: TaskView) -> str:
    outcome = view.outcome
    words = [view.phase.value.lower()]
    if outcome is not None:
        words += [f"exit code {outcome.exit_code}"] if outcome.exit_code is not None else []
        words += [_spoken(outcome.reason)] if outcome.reason is not None else []
        words += [outcome.detail] if outcome.detail else []
    return ", ".join(words) + "."


def _spoken(reason: Reason) -> str:
    return reason.value.replace("_", " ")


def _json(
    document: TaskView | TaskPage | AttemptPage | EventPage | Explanation, status: int = 200
) -> Response:
    return Response(document.model_dump_json(), status, media_type="application/json")
