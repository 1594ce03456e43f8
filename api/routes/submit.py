"""POST /v1/tasks: a submission, once per key. What does not fit is refused before any start."""

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from pydantic_core import from_json

from api.body import read_body
from api.gateway import new_view
from api.parts import Parts, PartsOf, now
from api.problems import MaybeAcceptedError, UnreadableError
from api.schema import SUBMISSION, refusals
from domain.errors import BacklogFullError, ConflictError, InvalidError, UnavailableError
from domain.ids import task_id_of_key
from domain.once import repeated_key
from domain.task import SubmitTask, TaskSpec, body_digest
from domain.views import TaskView
from store import tasks

KEY_CHARS_MAX = 1_000

router = APIRouter(tags=["tasks"])


@router.post(
    "/v1/tasks",
    status_code=201,
    response_model=TaskView,
    responses={
        200: {"model": TaskView, "description": "This key was used for the same task before."},
        **refusals(400, 409, 413, 422, 429, 503),
    },
    openapi_extra=SUBMISSION,
)
async def submit(
    request: Request,
    parts: PartsOf,
    idempotency_key: Annotated[str | None, Header(max_length=KEY_CHARS_MAX)] = None,
) -> Response:
    """Accept a task. Its `id`, or the `Idempotency-Key`, makes repetition safe."""
    body = await read_body(request, parts.settings.body_bytes_max)
    spec, chosen = read_submission(body, idempotency_key)
    digest = body_digest(spec)
    # Read first: it also tells that the ledger is there, before anything is half done.
    known = await parts.ledger.read(tasks.task, spec.key) if chosen else None
    if known is not None:
        return _same(known, digest)
    await parts.classes.check(spec)
    try:
        await parts.backlog.check()
    except BacklogFullError:
        # Accepted before, though it has no row yet?
        known = await parts.gateway.submitted(spec.key) if chosen else None
        if known is None:
            raise
        return _same(known, digest)
    try:
        created = await parts.gateway.start(spec, digest)
    except UnavailableError as error:
        raise MaybeAcceptedError(
            f"{error}; the task may or may not have been accepted: ask again with id {spec.id}",
            spec.id,
        ) from error
    if created:
        parts.backlog.grown()
        return _answer(new_view(spec, digest, now()), 201)
    return await _again(parts, spec, digest)


def read_submission(body: bytes, key: str | None) -> tuple[TaskSpec, bool]:
    """The task asked for, and whether its id was the client's choice."""
    try:
        given: Any = from_json(body)
    except ValueError as error:
        raise UnreadableError(f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise InvalidError("the body must be a JSON object")
    if twice := repeated_key(body):
        raise UnreadableError(f"{twice}: stands twice in the body, and only one can be meant")
    chosen = given.get("id") is not None
    if key is not None:
        _use_key(given, key)
    elif not chosen:
        given["id"] = f"t-{secrets.token_hex(10)}"
    submission = SubmitTask.model_validate(given)
    return submission, chosen or key is not None


def _use_key(given: dict[str, Any], key: str) -> None:
    if not key:
        raise InvalidError("Idempotency-Key: must not be empty")
    made = task_id_of_key(key)
    if given.setdefault("id", made) != made:
        raise InvalidError("Idempotency-Key and id name different tasks: give one of them")


async def _again(parts: Parts, spec: TaskSpec, digest: str) -> Response:
    """The workflow exists: its row, or its input while there is no row yet, says what it is for."""
    known = await parts.ledger.read(tasks.task, spec.key)
    if known is None:
        known = await parts.gateway.submitted(spec.key)
    if known is None:
        raise ConflictError(f"{spec.key} was used before, for a submission that was refused")
    return _same(known, digest)


def _same(known: TaskView, digest: str) -> Response:
    if known.digest != digest:
        raise ConflictError(f"{known.key} was used before with another body")
    return _answer(known, 200)


def _answer(view: TaskView, status: int) -> Response:
    # By hand: FastAPI would validate and walk the document again, at a millisecond each.
    return Response(view.model_dump_json(), status, media_type="application/json")
