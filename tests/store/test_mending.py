"""What the audit finds in the ledger is healed, and nothing that may run is stopped or released."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from domain.attempt import Phase
from domain.audit import Certainty, Fault
from domain.claims import Enqueue
from domain.fleet import Proposal
from domain.protocol import Inquiry, StopOrder
from domain.task import body_digest
from domain.views import EventKind
from store.audit import PARTS, Difference, Page, audit, page, snapshot
from store.claims import claim
from store.differences import (
    HEALED_KEPT_MAX,
    Seen,
    begin_run,
    conclude,
    counts,
    end_run,
    ledger_subjects,
    note_seen,
    report,
)
from store.mending import Mended, mend
from store.orders import orders
from store.session import transaction
from tests.store.world import EXITED, LOST, World, a_machine, a_task, succeeded

DAMAGES = [
    ("UPDATE machine SET used_cpu_milli = 999", Fault.USED_IS_NOT_THE_SUM),
    ("UPDATE machine SET used_extra = '{\"x\": 1}'", Fault.USED_IS_NOT_THE_SUM),
    ("UPDATE machine SET cap_cpu_milli = 1", Fault.OVER_CAPACITY),
    ("UPDATE usage SET gpu = 1", Fault.QUOTA_IS_NOT_THE_SUM),
    ("DELETE FROM usage", Fault.QUOTA_IS_NOT_THE_SUM),
    ("UPDATE task SET phase = 'FAILED'", Fault.FINAL_WITHOUT_OUTCOME),
    ("UPDATE task SET phase = 'PENDING'", Fault.OPEN_CLAIM_OF_ANOTHER_NUMBER),
    ("UPDATE task SET number = 0", Fault.OPEN_CLAIM_OF_ANOTHER_NUMBER),
]
"""Damages that leave the attempt itself alone, and the fault that each is."""


def damaged(world: World, damage: str) -> None:
    """One running task, and then somebody writes into the tables."""
    world.cluster()
    world.running()
    world.audited = False
    with transaction(world.engine) as connection:
        connection.execute(text(damage))


def mended(world: World) -> list[Mended]:
    """Heal until nothing more differs that the ledger can heal by itself; how."""
    done: list[Mended] = []
    for _ in range(3):
        found = world.read(audit)
        done += [world.do(mend, one.fault, one.subject, world.now).mended for one in found]
        if not found:
            return done
    raise AssertionError(world.read(audit))


@pytest.mark.parametrize(("damage", "fault"), DAMAGES)
def test_what_does_not_add_up_is_set_right_and_the_attempt_goes_on(
    world: World, damage: str, fault: Fault
) -> None:
    damaged(world, damage)
    assert fault in {one.fault for one in world.read(audit)}
    assert set(mended(world)) <= {Mended.DONE, Mended.AGREES}
    assert world.phase() is Phase.RUNNING
    assert [type(order) for order in world.do(orders, "c1")[1]] == []
    assert world.settle(EXITED).mine


def test_a_claimed_task_without_its_claim_has_it_again_and_its_agent_is_asked(
    world: World,
) -> None:
    damaged(world, "UPDATE claim SET standing = 'released', to_deliver = 0")
    with transaction(world.engine) as connection:
        connection.execute(text("UPDATE machine SET used_cpu_milli = 0, used_memory_mib = 0"))
        connection.execute(text("UPDATE usage SET cpu_milli = 0, memory_mib = 0"))
    assert [one.fault for one in world.read(audit)] == [Fault.CLAIMED_WITHOUT_OPEN_CLAIM]
    assert mended(world) == [Mended.ASKED]
    assert [type(order) for order in world.do(orders, "c1")[1]] == [Inquiry]
    assert world.story()[-1] is EventKind.MENDED
    # Its agent never had it: what follows is an ending like any other.
    assert world.settle(LOST).mine
    assert world.phase() is Phase.PENDING


def test_a_claim_that_has_vanished_altogether_is_made_anew(memory: World) -> None:
    damaged(memory, "DELETE FROM claim")
    faults = {one.fault for one in memory.read(audit)}
    assert Fault.CLAIMED_WITHOUT_OPEN_CLAIM in faults
    mended(memory)
    assert [type(order) for order in memory.do(orders, "c1")[1]] == [Inquiry]
    assert memory.settle(EXITED).mine


def test_an_open_claim_of_a_closed_number_is_told_to_stop_and_keeps_its_room(
    memory: World,
) -> None:
    damaged(memory, "UPDATE task SET number = 2, phase = 'PENDING', cluster = NULL")
    assert mended(memory) == [Mended.ASKED]
    stops = [o for o in memory.do(orders, "c1")[1] if isinstance(o, StopOrder)]
    assert [(o.key, o.number) for o in stops] == [("blue/t", 1)]
    memory.later(30)
    assert memory.claim() is None  # Not before its stop has come.
    assert not memory.settle(LOST, late=True).mine
    assert memory.read(audit) == []
    memory.later(60)
    assert memory.claim() == 3


def test_an_order_about_a_released_claim_is_taken_back(memory: World) -> None:
    damaged(memory, "SELECT 1")
    memory.settle(EXITED)
    with transaction(memory.engine) as connection:
        connection.execute(text("UPDATE claim SET to_deliver = 1"))
    assert [one.fault for one in memory.read(audit)] == [Fault.DELIVERS_WHAT_IS_RELEASED]
    assert mended(memory) == [Mended.DONE]


def test_what_adds_up_again_by_itself_is_left_alone(memory: World) -> None:
    memory.cluster()
    key = memory.running()
    for fault, subject in (
        (Fault.USED_IS_NOT_THE_SUM, "c1/m1"),
        (Fault.OVER_CAPACITY, "c1/m1"),
        (Fault.QUOTA_IS_NOT_THE_SUM, "blue"),
        (Fault.CLAIMED_WITHOUT_OPEN_CLAIM, key),
        (Fault.OPEN_CLAIM_OF_ANOTHER_NUMBER, key),
        (Fault.FINAL_WITHOUT_OUTCOME, key),
        (Fault.DELIVERS_WHAT_IS_RELEASED, f"{key}#1"),
        (Fault.USED_IS_NOT_THE_SUM, "c1/unknown"),
        (Fault.FINAL_WITHOUT_OUTCOME, "blue/unknown"),
    ):
        assert memory.do(mend, fault, subject, memory.now).mended is Mended.AGREES


def test_pages_show_what_the_whole_shows(world: World) -> None:
    world.cluster("c1", *(a_machine(f"m{number}") for number in range(5)))
    world.cluster("c2", a_machine("m9"))
    for number in range(5):
        world.running(a_task(f"t{number}", team=f"team{number}"), f"m{number}")
    world.audited = False
    with transaction(world.engine) as connection:
        for damage in (
            "UPDATE machine SET used_gpu = 3",
            "UPDATE usage SET gpu = 3",
            "UPDATE task SET number = 7 WHERE key > 'team1/'",
            "UPDATE task SET phase = 'FAILED' WHERE key > 'team4/'",
        ):
            connection.execute(text(damage))
    paged: list[Difference] = []
    for part in range(len(PARTS)):
        after: str | None = ""
        while after is not None:
            shown = world.read(_page_of_one_instant, part, after)
            assert shown.rows <= 2
            paged += shown.differences
            after = shown.after
    whole = world.read(audit)
    assert len(whole) > 15
    assert _sorted(paged) == _sorted(whole)


def _page_of_one_instant(
    connection: Connection, part: int, after: str = "", limit: int = 2
) -> Page:
    snapshot(connection)
    return page(connection, part, after, limit)


def _sorted(found: list[Difference]) -> list[Any]:
    return sorted((one.fault.value, one.subject, one.expected, one.found) for one in found)


# --- what is remembered ---------------------------------------------------------------------------


def looked_at(world: World) -> int:
    """One audit of the ledger alone: seen, looked at again, healed, counted."""
    run = world.do(begin_run, world.now)
    world.do(note_seen, run, [Seen(one) for one in world.read(audit)], world.now)
    for fault, subject in world.read(ledger_subjects):
        mending = world.do(mend, fault, subject, world.now)
        world.do(conclude, fault, subject, mending, world.now)
    world.do(end_run, run, 0, 0, world.now)
    return run


def test_a_difference_is_named_healed_and_counted_once(world: World) -> None:
    damaged(world, "UPDATE machine SET used_cpu_milli = 999")
    looked_at(world)
    looked_at(world)
    told = world.read(report)
    assert (told.run, told.standing) == (2, ())
    (healed,) = told.healed
    assert (healed.fault, healed.subject) == (Fault.USED_IS_NOT_THE_SUM, "c1/m1")
    assert "999" in healed.found
    assert "999" in healed.healing
    count = world.read(counts)[Fault.USED_IS_NOT_THE_SUM]
    assert (count.found, count.healed, count.standing) == (1, 1, 0)


def test_a_difference_that_waits_for_an_answer_stands_until_it_has_gone(memory: World) -> None:
    damaged(memory, "UPDATE task SET number = 2, phase = 'PENDING'")
    looked_at(memory)
    (stands,) = memory.read(report).standing
    assert (stands.fault, stands.certainty) == (
        Fault.OPEN_CLAIM_OF_ANOTHER_NUMBER,
        Certainty.STANDING,
    )
    looked_at(memory)
    told = memory.read(report)
    assert told.standing == ()
    count = told.counts[Fault.OPEN_CLAIM_OF_ANOTHER_NUMBER]
    assert (count.found, count.healed) == (1, 1)


def test_a_doubt_that_is_not_confirmed_is_no_difference(memory: World) -> None:
    memory.cluster()
    run = memory.do(begin_run, memory.now)
    doubt = Difference(Fault.QUOTA_IS_NOT_THE_SUM, "blue", "1", "2")
    assert memory.do(note_seen, run, [Seen(doubt)], memory.now) == 1
    looked_at(memory)
    told = memory.read(report)
    assert (told.standing, told.healed) == ((), ())
    assert all(count.found == 0 for count in told.counts.values())


def test_old_news_is_forgotten(memory: World) -> None:
    memory.audited = False  # Nothing here touches what an audit looks at.
    run = memory.do(begin_run, memory.now)
    for number in range(HEALED_KEPT_MAX + 5):
        memory.later(1)
        doubt = Difference(Fault.QUOTA_IS_NOT_THE_SUM, f"team{number}", "1", "2")
        memory.do(note_seen, run, [Seen(doubt)], memory.now)
        done = memory.do(mend, Fault.QUOTA_IS_NOT_THE_SUM, doubt.subject, memory.now)
        assert done.mended is Mended.AGREES
        healed = type(done)(Mended.DONE)
        memory.do(conclude, doubt.fault, doubt.subject, healed, memory.now)
    memory.do(end_run, run, 0, 0, memory.now)
    kept = memory.read(report).healed
    assert len(kept) == HEALED_KEPT_MAX
    assert kept[0].subject == f"team{HEALED_KEPT_MAX + 4}"


# --- beside others --------------------------------------------------------------------------------


def test_sums_are_looked_at_and_set_right_while_others_claim_and_settle(engine: Engine) -> None:
    """No page shows a difference that is none, and no healing takes another's part for its own."""
    world = World(engine)
    world.cluster("c1", *(a_machine(f"m{number}") for number in range(3)))
    specs = [a_task(f"t{number}", resources={"cpu_milli": 500}) for number in range(90)]
    world.apply(*(Enqueue(spec=s, digest=body_digest(s), at=world.now) for s in specs))
    damages = [
        "UPDATE machine SET used_cpu_milli = used_cpu_milli - 700 WHERE name = 'm1'",
        "INSERT INTO usage (team, gpu) VALUES ('blue', 3)",
    ]
    world.audited = False
    with transaction(engine) as connection:
        for damage in damages:
            connection.execute(text(damage))

    def works(first: int) -> int:
        for number in range(first, len(specs), 3):
            wish = Proposal(specs[number].key, "c1", f"m{number % 3}")
            with transaction(engine) as connection:
                (won,) = claim(connection, 0, [wish], world.now)
            if won.number is not None:
                world.settle(EXITED, succeeded(1), key=won.key)
        return 0

    def audits(_: int) -> int:
        seen: set[tuple[Fault, str]] = set()
        for _ in range(25):
            for part in range(len(PARTS)):
                found = world.read(_page_of_one_instant, part, limit=500).differences
                seen |= {(one.fault, one.subject) for one in found}
                for one in found:
                    world.do(mend, one.fault, one.subject, world.now)
        assert seen == {
            (Fault.USED_IS_NOT_THE_SUM, "c1/m1"),
            (Fault.QUOTA_IS_NOT_THE_SUM, "blue"),
        }
        return len(seen)

    with ThreadPoolExecutor(4) as pool:
        auditing = pool.submit(audits, 0)
        working = [pool.submit(works, first) for first in range(3)]
        assert [one.result() for one in working] == [0, 0, 0]
        assert auditing.result() == 2
    assert world.read(audit) == []
