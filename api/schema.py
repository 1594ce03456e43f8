"""The OpenAPI document beyond what FastAPI sees in the routes: bodies read by hand, problems."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from domain.faces import Problem
from domain.task import SubmitTask

_REF = "#/components/schemas/{model}"
_TEXT = {
    400: "Not JSON.",
    404: "Not known.",
    409: "The key was used before with another body, or what is said is not so.",
    413: "The body is longer than the limit.",
    422: "Does not fit, or no machine could ever hold it.",
    429: "More than can be taken now: ask again after Retry-After seconds.",
    503: "Temporal, the ledger or an agent is not there: ask again after Retry-After seconds.",
}
SUBMISSION: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": _REF.format(model="SubmitTask")}}},
    }
}


def refusals(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route, as FastAPI wants them described."""
    schema = {"$ref": _REF.format(model="Problem")}
    content = {"application/problem+json": {"schema": schema}}
    return {code: {"description": _TEXT[code], "content": content} for code in codes}


def describe(app: FastAPI) -> None:
    """Serve a document with every schema that the routes refer to."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            schemas = made.setdefault("components", {}).setdefault("schemas", {})
            for model in (SubmitTask, Problem):
                schema = model.model_json_schema(ref_template=_REF)
                schemas.update(schema.pop("$defs", {}))
                schemas[model.__name__] = schema
            # The door makes an id where the client gives none.
            required = schemas["SubmitTask"]["required"]
            schemas["SubmitTask"]["required"] = [name for name in required if name != "id"]
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
