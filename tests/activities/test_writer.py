"""The writer: what waits together shares a commit, and none harms another."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection, Engine

from activities import writer as writer_module
from activities.writer import LedgerBusyError, LedgerWriter
from domain.attempt import Outcome, Phase
from domain.claims import LedgerOperation, Withdraw, WithdrawAnswer, WithdrawCause, Withdrawn
from store.ledger import Applied
from store.session import open_engine

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def operation(key: str) -> Withdraw:
    outcome = Outcome(phase=Phase.CANCELLED)
    return Withdraw(key=key, cause=WithdrawCause.CANCEL, outcome=outcome, at=NOW)


class Book:
    """Groups as they were applied; `blocked` holds the writer's thread up; keys named bad fail."""

    def __init__(self, engine: Engine) -> None:
        self.groups: list[list[str]] = []
        self.blocked = threading.Event()
        self.blocked.set()
        self.committed: list[Applied] = []
        self.writer = LedgerWriter(engine, self.apply, self.note)

    def note(self, _operations: list[LedgerOperation], applied: Applied) -> None:
        self.committed.append(applied)

    def apply(self, _connection: Connection, operations: list[LedgerOperation]) -> Applied:
        self.blocked.wait(60)
        keys = [one.key for one in operations if isinstance(one, Withdraw)]
        self.groups.append(keys)
        if any(key.startswith("bad") for key in keys):
            raise ValueError("bad")
        answers = [Withdrawn(answer=WithdrawAnswer.NO_EFFECT) for _ in operations]
        return Applied(answers=list(answers), rings=set(), clusters=set())


@pytest.fixture
def book() -> Iterator[Book]:
    engine = open_engine("sqlite://")
    made = Book(engine)
    made.writer.start()
    yield made
    made.blocked.set()
    made.writer.stop()
    engine.dispose()


async def test_operations_that_wait_together_share_a_commit(book: Book) -> None:
    book.blocked.clear()
    waiting = [asyncio.create_task(book.writer.apply(operation(f"k{n}"))) for n in range(50)]
    await asyncio.sleep(0)
    book.blocked.set()
    answers = await asyncio.gather(*waiting)
    await asyncio.to_thread(book.writer.stop)  # Answers come just before their group is noted.
    assert len(answers) == 50
    assert len(book.groups) <= 3
    assert sum(len(group) for group in book.groups) == 50
    assert len(book.committed) == len(book.groups)


async def test_a_bad_operation_fails_alone(book: Book) -> None:
    book.blocked.clear()
    keys = ["k1", "bad", "k2"]
    waiting = [asyncio.create_task(book.writer.apply(operation(key))) for key in keys]
    await asyncio.sleep(0)
    book.blocked.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [isinstance(answer, ValueError) for answer in answers] == [False, True, False]


async def test_nobody_waits_for_what_was_cancelled(book: Book) -> None:
    book.blocked.clear()
    first = asyncio.create_task(book.writer.apply(operation("first")))
    await asyncio.sleep(0.05)
    second = asyncio.create_task(book.writer.apply(operation("second")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    book.blocked.set()
    await first
    await book.writer.apply(operation("third"))
    assert "second" not in [key for group in book.groups for key in group]


async def test_a_full_queue_is_refused_at_once(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "WAITING_MAX", 2)
    small = LedgerWriter(book.writer._engine, book.apply, book.note)
    waiting = [asyncio.create_task(small.apply(operation(f"k{n}"))) for n in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(LedgerBusyError):
        await waiting[2]
    small.start()
    await asyncio.gather(*waiting[:2])
    await asyncio.to_thread(small.stop)
    with pytest.raises(LedgerBusyError):
        await small.apply(operation("late"))


def test_where_the_database_has_several_writers_work_that_is_apart_goes_side_by_side(
    postgres_url: str,
) -> None:
    """Each waits, inside its transaction, until the other is inside its own."""
    engine = open_engine(postgres_url)
    book = Book(engine)
    book.writer.start()
    both = threading.Barrier(2)
    begun = [book.writer.begin_apart(lambda _: both.wait(60)) for _ in range(2)]
    assert sorted(one.result(60) for one in begun) == [0, 1]
    book.writer.stop()
    with pytest.raises(LedgerBusyError):
        book.writer.begin_apart(lambda _: None)
    engine.dispose()


async def test_elsewhere_work_that_is_apart_waits_its_turn(book: Book) -> None:
    begun = [book.writer.begin_apart(lambda _: threading.current_thread().name) for _ in range(2)]
    assert {one.result(60) for one in begun} == {"ledger-writer"}
