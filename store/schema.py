"""Brings a database to the newest schema. Safe when several processes start at once."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from store.session import reading, transaction

_MIGRATIONS = Path(__file__).parent / "migrations"
_ADVISORY_LOCK = 0x64727973746F6E65
"""The ASCII letters of the product's name: taken by whoever migrates a PostgreSQL database."""


def migrate(engine: Engine) -> None:
    """Apply every migration that is missing; the others wait, then find nothing to do."""
    with reading(engine) as connection:
        if _current(connection) == _newest():
            return
    with transaction(engine) as connection:  # On SQLite this is the lock already.
        if connection.dialect.name == "postgresql":
            key = text("SELECT pg_advisory_xact_lock(:key)").bindparams(key=_ADVISORY_LOCK)
            connection.execute(key)
        config = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def is_current(engine: Engine) -> bool:
    """True when the database has the schema that this program expects."""
    with reading(engine) as connection:
        return _current(connection) == _newest()


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _newest() -> str | None:
    return ScriptDirectory.from_config(alembic_config()).get_current_head()


def alembic_config() -> Config:
    """Where the migrations lie; `attributes["connection"]` says on which database to run them."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    return config
