"""docker-compose.yml says what the compose schema allows, and what our processes understand."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from runtime.settings import ENV_PREFIX, Settings
from tests.support.compose import read_compose, with_defaults

ROOT = Path(__file__).resolve().parent.parent
OURS = ("worker", "api", "agent", "keeper")


def _schema() -> dict[str, Any]:
    folder = files("check_jsonschema") / "builtin_schemas" / "vendor"
    return json.loads((folder / "compose-spec.json").read_text())


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return read_compose()


def test_it_fits_the_compose_schema(compose: dict[str, Any]) -> None:
    jsonschema.validate(compose, _schema())


def test_the_schema_would_notice(compose: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**compose, "services": {"api": {"comand": ["api"]}}}, _schema())


def test_every_part_of_the_production_set_is_there(compose: dict[str, Any]) -> None:
    parts = {"postgresql", "temporal-postgresql", "temporal", "temporal-ui", *OURS}
    assert set(compose["services"]) == parts


@pytest.mark.parametrize("name", OURS)
def test_each_process_runs_its_own_command_in_our_image(compose: dict[str, Any], name: str) -> None:
    service = compose["services"][name]
    assert service["command"] == [name]
    assert service["build"] == "."
    assert 'ENTRYPOINT ["drystone"]' in (ROOT / "Dockerfile").read_text()


@pytest.mark.parametrize("name", OURS)
def test_its_environment_is_settings(
    compose: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment: dict[str, Any] = compose["services"][name]["environment"]
    known = {f"{ENV_PREFIX}{field.upper()}" for field in Settings.model_fields}
    assert set(environment) - known == set()
    for variable, value in environment.items():
        monkeypatch.setenv(variable, with_defaults(str(value)))
    settings = Settings()
    if name in ("worker", "api"):
        assert settings.database_url.startswith("postgresql+psycopg://drystone:drystone@")


def test_agent_and_keeper_find_each_other(compose: dict[str, Any]) -> None:
    agent = compose["services"]["agent"]["environment"]
    keeper = compose["services"]["keeper"]["environment"]
    assert keeper["DRYSTONE_KEEPER_AGENT_URL"] == agent["DRYSTONE_AGENT_URL"]
    assert keeper["DRYSTONE_CLUSTER"] == agent["DRYSTONE_CLUSTER"]


def test_what_is_depended_on_exists_and_can_be_healthy(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            healthy = how["condition"] != "service_healthy" or "healthcheck" in services[other]
            assert healthy, f"{name} waits for {other}, which has no health check"


def test_nothing_is_open_to_the_network_by_default(compose: dict[str, Any]) -> None:
    ports = [p for service in compose["services"].values() for p in service.get("ports", [])]
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_attempts_have_their_grace_before_a_stop_becomes_a_kill(compose: dict[str, Any]) -> None:
    grace = compose["services"]["keeper"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) > 30
