"""The private server: it starts, keeps databases apart, and leaves nothing behind."""

from pathlib import Path

import psutil
import psycopg
import pytest

from tests.support import postgres
from tests.support.postgres import NoPostgresError, PostgresServer, private_server


def _connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url.replace("postgresql+psycopg", "postgresql"))


def test_each_test_has_an_empty_database_of_its_own(postgres_url: str) -> None:
    with _connect(postgres_url) as connection:
        connection.execute("CREATE TABLE t (x int)")
        tables = connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone()
    assert tables == (1,)


def test_the_next_one_is_empty_again(postgres_url: str) -> None:
    test_each_test_has_an_empty_database_of_its_own(postgres_url)


def test_the_wheel_serves_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    binaries = postgres._wheel()
    assert binaries, "the wheel is among the development requirements"

    def copied(folder: Path, _user: object) -> Path:
        (binaries,) = postgres._copied(folder)
        return binaries

    monkeypatch.setattr(postgres, "_usable_binaries", copied)
    with private_server() as server:
        assert _processes(server)
        server.execute("SELECT 1")
    assert not _processes(server)
    assert not server.folder.exists()


def test_where_there_is_none_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_folder: Path, _user: object) -> Path:
        raise NoPostgresError("for the test")

    monkeypatch.setattr(postgres, "_usable_binaries", none)
    with pytest.raises(NoPostgresError, match="for the test"), private_server():
        pass


def _processes(server: PostgresServer) -> list[int]:
    mark = str(server.folder)
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(mark in word for word in process.info["cmdline"] or [])
    ]
