"""What a process tells the world: JSON lines on standard error, one per transition.

Set up once, in a __main__. Libraries that log the standard way come out in the same shape.
"""

import logging
import sys

import structlog
from structlog.typing import FilteringBoundLogger, Processor

from runtime.settings import TelemetrySettings

# Chatty at `info` about things that our own lines already say.
_QUIET = ("httpx", "httpcore", "uvicorn.access", "alembic.runtime.migration")


def set_up_logging(settings: TelemetrySettings, process: str, **facts: str) -> None:
    """Lines from here on carry the process's name (worker, api, agent, ...) and these facts."""
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _with_facts({"process": process, **facts}),
        structlog.processors.StackInfoRenderer(),
    ]
    rendered = _rendering(settings)
    structlog.configure(
        processors=[*shared, *rendered],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendered],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def logger() -> FilteringBoundLogger:
    """Ask for it where it is used, not at import: it reads the set-up when it first speaks."""
    bound: FilteringBoundLogger = structlog.get_logger()
    return bound


def _with_facts(facts: dict[str, str]) -> Processor:
    def add(
        _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        return {**facts, **event}

    return add


def _rendering(settings: TelemetrySettings) -> list[Processor]:
    if settings.log_format == "text":
        return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    return [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
