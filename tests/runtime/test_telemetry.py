"""Log lines: one JSON object each, ours and those of libraries alike."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from runtime.settings import TelemetrySettings
from runtime.telemetry import logger, set_up_logging


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def _lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_a_line_is_an_object_with_the_process_and_its_facts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_logging(TelemetrySettings(), "agent", cluster="red")
    logger().info("admitted", task="task/blue/1", attempt=2)
    (line,) = _lines(capsys)
    stamp = line.pop("timestamp")
    assert stamp.endswith("Z")
    assert line == {
        "event": "admitted",
        "level": "info",
        "process": "agent",
        "cluster": "red",
        "task": "task/blue/1",
        "attempt": 2,
    }


def test_libraries_come_out_in_the_same_shape(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(TelemetrySettings(), "api")
    logging.getLogger("uvicorn.error").warning("hello %s", "there")
    logging.getLogger("httpx").info("every request")
    (line,) = _lines(capsys)
    assert (line["event"], line["logger"], line["process"]) == (
        "hello there",
        "uvicorn.error",
        "api",
    )


def test_an_exception_is_data(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(TelemetrySettings(), "worker")
    try:
        raise ValueError("boom")
    except ValueError:
        logger().exception("failed")
    (line,) = _lines(capsys)
    assert "boom" in json.dumps(line["exception"])


def test_lines_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(TelemetrySettings(log_level="warning"), "worker")
    logger().info("chatter")
    logging.getLogger("any").info("chatter")
    assert _lines(capsys) == []


def test_text_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(TelemetrySettings(log_format="text"), "worker")
    logger().info("ready")
    assert "ready" in capsys.readouterr().err
