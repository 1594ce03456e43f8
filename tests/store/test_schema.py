"""The migrations, the databases and the audit itself."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Engine, inspect, text

from domain.audit import Fault
from store.audit import audit
from store.schema import alembic_config, is_current, migrate
from store.session import create_schema, open_engine, reading, transaction
from store.tables import METADATA
from tests.store.world import World, a_task


def _condition(index: Any) -> str:
    return " ".join(str(text) for _, text in sorted(index.get("dialect_options", {}).items()))


def _described(engine: Engine) -> dict[str, Any]:
    """Columns, keys and indexes of every table of ours, as the database itself tells them."""
    with reading(engine) as connection:
        found = inspect(connection)
        return {
            table: {
                "columns": [
                    (c["name"], str(c["type"]), c["nullable"], c["default"])
                    for c in found.get_columns(table)
                ],
                "key": found.get_pk_constraint(table)["constrained_columns"],
                "foreign": sorted(
                    (f["constrained_columns"], f["referred_table"], f["options"])
                    for f in found.get_foreign_keys(table)
                ),
                "indexes": sorted(
                    (str(i["name"]), i["column_names"], _condition(i))
                    for i in found.get_indexes(table)
                ),
            }
            for table in sorted(METADATA.tables)
        }


def test_the_migrations_make_what_the_tables_say(database_url: str) -> None:
    engine = open_engine(database_url)
    assert not is_current(engine)
    migrate(engine)
    migrate(engine)
    assert is_current(engine)
    migrated = _described(engine)
    with transaction(engine) as connection:
        METADATA.drop_all(connection)
    create_schema(engine)
    assert migrated == _described(engine)
    engine.dispose()


def test_the_migrations_can_be_taken_back(database_url: str) -> None:
    engine = open_engine(database_url)
    migrate(engine)
    with transaction(engine) as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    with reading(engine) as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]
    migrate(engine)
    assert is_current(engine)
    engine.dispose()


def _migrate(url: str) -> bool:
    engine = open_engine(url)
    migrate(engine)
    current = is_current(engine)
    engine.dispose()
    return current


def test_several_processes_may_migrate_at_once(database_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(3, mp_context=spawn) as pool:
        assert list(pool.map(_migrate, [database_url] * 3)) == [True] * 3


def test_sqlite_is_durable_enough_and_lets_readers_read(engine: Engine) -> None:
    if engine.dialect.name != "sqlite":
        pytest.skip("about SQLite alone")
    with reading(engine) as connection:
        pragmas = ("journal_mode", "synchronous", "foreign_keys")
        found = [connection.scalar(text(f"PRAGMA {name}")) for name in pragmas]
        assert found == ["wal", 1, 1]
    with transaction(engine), reading(engine) as beside:
        assert beside.scalar(text("SELECT count(*) FROM task")) == 0


def test_a_transaction_that_fails_leaves_nothing(world: World) -> None:
    def fails_half_way() -> None:
        with transaction(world.engine) as connection:
            connection.execute(text("INSERT INTO brake (id) VALUES (7)"))
            raise TimeoutError

    with pytest.raises(TimeoutError):
        fails_half_way()
    with reading(world.engine) as connection:
        assert connection.scalar(text("SELECT count(*) FROM brake")) == 0


@pytest.mark.parametrize("url", ["mysql://x/y", "nonsense", ""])
def test_other_databases_are_refused_by_name(url: str) -> None:
    with pytest.raises(Exception, match=r"sqlite|parse"):
        open_engine(url)


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        ("UPDATE machine SET used_cpu_milli = 999", Fault.USED_IS_NOT_THE_SUM),
        ("UPDATE machine SET used_extra = '{\"x\": 1}'", Fault.USED_IS_NOT_THE_SUM),
        ("UPDATE machine SET cap_cpu_milli = 1", Fault.OVER_CAPACITY),
        ("UPDATE usage SET gpu = 1", Fault.QUOTA_IS_NOT_THE_SUM),
        ("UPDATE claim SET standing = 'remnant'", Fault.CLAIMED_WITHOUT_OPEN_CLAIM),
        ("UPDATE task SET phase = 'PENDING'", Fault.OPEN_CLAIM_OF_ANOTHER_NUMBER),
        ("UPDATE task SET number = 2", Fault.OPEN_CLAIM_OF_ANOTHER_NUMBER),
        ("UPDATE task SET phase = 'FAILED'", Fault.FINAL_WITHOUT_OUTCOME),
        (
            "UPDATE claim SET standing = 'released', to_deliver = 1",
            Fault.DELIVERS_WHAT_IS_RELEASED,
        ),
    ],
)
def test_the_audit_finds_what_does_not_add_up(memory: World, damage: str, fault: Fault) -> None:
    memory.cluster()
    memory.running(a_task())
    with transaction(memory.engine) as connection:
        connection.execute(text(damage))
        assert fault in {difference.fault for difference in audit(connection)}


def test_what_claims_take_over_is_filled_in_for_tasks_that_are_there(database_url: str) -> None:
    engine = open_engine(database_url)
    migrate(engine)
    world = World(engine)
    rules = {"service": "db", "anti_affinity": ["web", "batch"]}
    asks = {"cpu_milli": 1, "memory_mib": 2, "gpu": 3, "extra": {"licence": 4}}
    world.enqueue(a_task("plain"))
    world.enqueue(a_task("bound", constraints=rules, resources=asks, on_loss="wait", grace_s=7))
    names = "on_loss, grace_s, neighbour, cpu_milli, memory_mib, gpu, disk_mib, net_mbps, extra"
    question = text(f"SELECT {names} FROM task ORDER BY key")
    with transaction(engine) as connection:
        before = connection.execute(question).all()
        config = alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "0002")
        command.upgrade(config, "head")
        assert connection.execute(question).all() == before
    engine.dispose()
