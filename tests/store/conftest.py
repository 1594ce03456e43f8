"""A ledger on each of the two databases. That migrations make the same is tested on its own."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from store.session import create_schema, open_engine
from tests.store.world import World


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """With all tables, and closed at the end."""
    opened = open_engine(database_url)
    create_schema(opened)
    yield opened
    opened.dispose()


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
