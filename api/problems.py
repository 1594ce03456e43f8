"""Every "no" of the API as application/problem+json. Decides status codes; knows no route."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from domain.errors import (
    BusyError,
    ConflictError,
    DrystoneError,
    InvalidError,
    NeverFitsError,
    NotFoundError,
    UnavailableError,
)
from domain.faces import FieldError, Problem
from domain.misfit import in_a_line, misfits
from runtime.telemetry import logger

MEDIA_TYPE = "application/problem+json"
FIELD_ERRORS_MAX = 20
MESSAGE_CHARS_MAX = 500


class TooLargeError(DrystoneError):
    """The body is longer than the limit."""

    code = "too_large"


class UnreadableError(InvalidError):
    """Not even JSON."""

    code = "unreadable"


class MaybeAcceptedError(UnavailableError):
    """A submission whose fate is unknown: asking again under the same id is safe."""

    def __init__(self, message: str, task: str) -> None:
        super().__init__(message)
        self.task = task


_STATUS: Sequence[tuple[type[DrystoneError], HTTPStatus]] = (
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (ConflictError, HTTPStatus.CONFLICT),
    (TooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (NeverFitsError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (UnreadableError, HTTPStatus.BAD_REQUEST),
    (InvalidError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (BusyError, HTTPStatus.TOO_MANY_REQUESTS),
    (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
)
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_CODE = {400: "invalid", 404: "not_found", 405: "method_not_allowed", 422: "invalid"}


def install_problem_handlers(app: FastAPI, retry_after_s: int) -> None:
    """Answer every error of this application with a problem document."""

    async def refused(_request: Request, error: Exception) -> Response:
        assert isinstance(error, DrystoneError)
        return refusal(error, retry_after_s)

    app.add_exception_handler(DrystoneError, refused)
    app.add_exception_handler(RequestValidationError, _misfit)
    app.add_exception_handler(ValidationError, _misfit)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _bug)


def refusal(error: DrystoneError, retry_after_s: int) -> Response:
    """The document that says this "no"; `Retry-After` where asking again may help."""
    status = next((s for kind, s in _STATUS if isinstance(error, kind)), HTTPStatus.BAD_REQUEST)
    problem = Problem(
        title=status.phrase,
        status=status,
        detail=_printable(str(error)),
        code=error.code,
        lost=error.lost if isinstance(error, NeverFitsError) else {},
        task=error.task if isinstance(error, MaybeAcceptedError) else "",
    )
    helps = isinstance(error, UnavailableError | BusyError)
    return problem_response(problem, {"Retry-After": str(retry_after_s)} if helps else None)


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The document as a response."""
    shown = {"type": problem.type, **problem.model_dump(mode="json", exclude_defaults=True)}
    return JSONResponse(shown, problem.status, headers=headers, media_type=MEDIA_TYPE)


async def _misfit(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError | ValidationError)
    found = misfits(error.errors())
    shown = found[:FIELD_ERRORS_MAX]
    problem = Problem(
        title="Unprocessable Content",
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
        detail=_printable(in_a_line(found), 3 * MESSAGE_CHARS_MAX),
        code="invalid",
        errors=tuple(
            FieldError(field=_printable(field), message=_printable(message))
            for field, message in shown
        ),
    )
    return problem_response(problem)


def _printable(text: str, limit: int = MESSAGE_CHARS_MAX) -> str:
    clean = text.encode("utf-8", "replace").decode()
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


async def _http(request: Request, error: Exception) -> Response:
    """What the framework refuses by itself: paths and methods that nobody answers."""
    assert isinstance(error, HTTPException)
    title = HTTPStatus(error.status_code).phrase
    detail, headers = str(error.detail), dict(error.headers or {})
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"there is nothing at {request.url.path}; /docs lists what there is"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # The framework names the methods of one route only; a path may have several.
        headers["Allow"] = allowed = ", ".join(_methods(request))
        detail = f"{request.url.path} does not answer {request.method}, but {allowed}"
    problem = Problem(
        title=title,
        status=error.status_code,
        detail=_printable(detail),
        code=_CODE.get(error.status_code, title.lower().replace(" ", "_")),
    )
    return problem_response(problem, headers)


def _methods(request: Request) -> list[str]:
    """Those that this path answers."""
    asked = {name: request.scope[name] for name in ("type", "path", "root_path", "headers")}
    return [
        method
        for method in _METHODS
        if any(r.matches({**asked, "method": method})[0] is Match.FULL for r in request.app.routes)
    ]


async def _bug(request: Request, error: Exception) -> Response:
    logger().error("unexpected error", path=request.url.path, error=repr(error), exc_info=error)
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    problem = Problem(
        title=status.phrase, status=status, code="internal", detail="see the log of the API"
    )
    return problem_response(problem)
