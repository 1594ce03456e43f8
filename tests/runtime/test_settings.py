"""Settings: where they come from, what they refuse, how a child process gets the same ones."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from runtime.settings import Settings


def test_the_ledger_lies_in_the_data_folder_by_default(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert settings.database_url == f"sqlite:///{tmp_path / 'ledger.db'}"


def test_the_environment_is_read_and_a_keyword_wins_over_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DRYSTONE_HEARTBEAT_S", "0.5")
    monkeypatch.setenv("DRYSTONE_API_PORT", "9000")
    settings = Settings(api_port=9001)
    assert (settings.heartbeat_s, settings.api_port) == (0.5, 9001)


def test_what_a_workload_is_told_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRYSTONE_TASK_ID", "blue/1")
    monkeypatch.setenv("DRYSTONE_ATTEMPT", "3")
    assert Settings().cluster == "local"


def test_a_plain_postgres_url_gets_the_driver_we_ship() -> None:
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        settings = Settings(database_url=f"{scheme}://u@h/d")
        assert settings.database_url == "postgresql+psycopg://u@h/d"


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease_s": 20},
        {"heartbeat_s": 30},
        {"heartbeat_s": 0},
        {"lease_s": float("inf")},
        {"partitions": 0},
        {"api_port": 70_000},
        {"database_url": "ledger.db"},
        {"no_such_setting": 1},
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings(**wrong)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().lease_s = 1


def test_a_child_process_gets_the_same_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Settings(
        data_dir=tmp_path,
        lease_s=1,
        suspect_s=0.9,
        heartbeat_s=0.25,
        temporal_tls=True,
        temporal_api_key=SecretStr("secret"),
        cluster="red",
    )
    for name, value in ours.environment().items():
        monkeypatch.setenv(name, value)
    assert Settings() == ours
    assert "secret" not in repr(ours)
