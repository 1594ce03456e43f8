"""The production set of docker-compose.yml, for tests that start it without containers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

COMPOSE_FILE = Path(__file__).resolve().parents[2] / "docker-compose.yml"


@dataclass(frozen=True)
class Service:
    """One service: the words after our image's entry point, and its environment."""

    command: tuple[str, ...]
    environment: dict[str, str]


def read_compose() -> dict[str, Any]:
    """The whole document."""
    document: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
    return document


def service(name: str) -> Service:
    """As compose would start it where no variable is set."""
    described = read_compose()["services"][name]
    environment = described.get("environment", {})
    return Service(
        command=tuple(described["command"]),
        environment={name: with_defaults(str(value)) for name, value in environment.items()},
    )


def with_defaults(text: str) -> str:
    """`${NAME:-default}` as compose reads it where NAME is not set."""
    while "${" in text:
        head, rest = text.split("${", 1)
        variable, tail = rest.split("}", 1)
        text = head + variable.partition(":-")[2] + tail
    return text
