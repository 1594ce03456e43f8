"""A ledger on each of the two databases. That migrations make the same is tested on its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from store.session import create_schema, open_engine, transaction
from store.tables import METADATA
from tests.store.world import World
from tests.support.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_engine(postgres_server: PostgresServer) -> Iterator[Engine]:
    """One database for all ledger tests, which run one after the other: emptied for each."""
    postgres_server.execute("CREATE DATABASE ledger_tests")
    opened = open_engine(postgres_server.url("ledger_tests"))
    create_schema(opened)
    yield opened
    opened.dispose()
    postgres_server.execute("DROP DATABASE ledger_tests WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """All tables, empty."""
    if request.param == "sqlite":
        opened = open_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
        create_schema(opened)
        yield opened
        opened.dispose()
        return
    shared: Engine = request.getfixturevalue("postgres_engine")
    with transaction(shared) as connection:
        for table in reversed(METADATA.sorted_tables):
            connection.execute(table.delete())
    yield shared


@pytest.fixture
def world(engine: Engine) -> World:
    """A ledger on each database."""
    return World(engine)


@pytest.fixture
def memory() -> Iterator[World]:
    """A ledger in memory, for what does not depend on the database."""
    opened = open_engine("sqlite://")
    create_schema(opened)
    yield World(opened)
    opened.dispose()
