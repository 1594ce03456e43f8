"""How each difference in the ledger is healed: looked at again under locks, and then set right.

What a sum should be is written down; what only an agent can know is asked of it. Nothing whose
number is open is stopped, and no claim is released here: only an attempt's own ending does that.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, insert, select, update

from domain.attempt import Outcome, Phase, StopCause
from domain.audit import Fault
from domain.ids import attempt_id, split_attempt_id
from domain.resources import COLUMNS
from domain.views import EventKind
from store.audit import CLAIMED, quota_sums, room_of, room_sums, room_text
from store.bell import ring_waiting
from store.dialects import next_revision, upsert
from store.lines import ClaimLine, OfferState, Standing, TaskLine
from store.locking import Work
from store.machines import CAPACITY
from store.mapping import extra_text, micros, neighbour_text, place_of, read_spec
from store.room import Room
from store.tables import CLAIM, CLUSTER, MACHINE, SPEC, USAGE
from store.transitions import close, note, order_stop, touch
from store.writing import USED, write

HELD_BACK_S = 60
"""A waiting task whose closed number still runs is not placed again before its stop has come."""


class Mended(StrEnum):
    """What a second look has found, or done."""

    AGREES = "agrees"
    """Nothing differs: it was in flight, or has gone."""
    DONE = "done"
    ASKED = "asked"
    """An order or question is on its way; the difference goes with its answer."""
    NOT = "not"


@dataclass(frozen=True, slots=True)
class Mending:
    """The result, in words for people, and whom to tell after the commit."""

    mended: Mended
    how: str = ""
    rings: set[int] = field(default_factory=set)
    clusters: set[str] = field(default_factory=set)


AGREES = Mending(Mended.AGREES)


def mend(connection: Connection, fault: Fault, subject: str, now: datetime) -> Mending:
    """Heal one difference that the ledger alone has shown."""
    return _MENDERS[fault](connection, subject, now)


# --- sums ---------------------------------------------------------------------------------------


def _used(connection: Connection, place: str, now: datetime) -> Mending:
    # The machine's row is locked before its claims are read: who has changed them and not yet the
    # row adds its own part to whatever is written here.
    row = _locked_machine(connection, place)
    if row is None:
        return AGREES
    right, said = room_sums(connection, [place])[place], room_of(row, USED, row.used_extra)
    if room_text(right) == room_text(said):
        return AGREES
    values: dict[str, Any] = dict(zip(USED, right.vector, strict=True))
    values |= {"used_extra": extra_text(right.amounts()), "revision": next_revision(connection)}
    connection.execute(update(MACHINE).where(MACHINE.c.place == place).values(values))
    rings = ring_waiting(connection, now)
    return Mending(Mended.DONE, f"used was {room_text(said)}: set to the sum of its claims", rings)


def _over(connection: Connection, place: str, _now: datetime) -> Mending:
    row = _locked_machine(connection, place)
    if row is None or row.shrunk:
        return AGREES
    used, capacity = room_of(row, USED, row.used_extra), room_of(row, CAPACITY, row.cap_extra)
    if Room().holds(used, capacity):
        return AGREES
    connection.execute(update(MACHINE).where(MACHINE.c.place == place).values(shrunk=1))
    text = "marked as holding more than it has: it takes nothing until that fits"
    return Mending(Mended.DONE, text)


def _locked_machine(connection: Connection, place: str) -> Any:
    mine = select(MACHINE).where(MACHINE.c.place == place).with_for_update(key_share=True)
    return connection.execute(mine).one_or_none()


def _quota(connection: Connection, team: str, now: datetime) -> Mending:
    connection.execute(upsert(connection, USAGE), {"team": team})
    mine = USAGE.c.team == team
    row = connection.execute(select(USAGE).where(mine).with_for_update(key_share=True)).one()
    right, said = quota_sums(connection, [team])[team], room_of(row, COLUMNS, row.extra)
    if room_text(right) == room_text(said):
        return AGREES
    values: dict[str, Any] = dict(zip(COLUMNS, right.vector, strict=True))
    values["extra"] = extra_text(right.amounts())
    connection.execute(update(USAGE).where(mine).values(values))
    rings = ring_waiting(connection, now)
    text = f"charged was {room_text(said)}: set to the sum of its claims"
    return Mending(Mended.DONE, text, rings)


# --- rows that contradict each other ------------------------------------------------------------


def _restless(connection: Connection, attempt: str, now: datetime) -> Mending:
    work, _, claim = _locked(connection, attempt, now)
    if claim is None or claim.held or not claim.to_deliver:
        return AGREES
    claim.to_deliver = claim.inquiry = 0
    claim.changed = True
    return _written(work, Mended.DONE, "the order about a released claim is taken back")


def _end(connection: Connection, key: str, now: datetime) -> Mending:
    work = Work(connection, micros(now))
    work.lock_current([key])
    task = work.tasks.get(key)
    if task is None or Phase(task.phase).final == task.final:
        return AGREES
    claim = work.claims.get(attempt_id(key, task.number))
    if claim is not None and claim.open and not task.final:
        _stands_as(task, claim)  # Nobody has recorded an end, and it may run.
        return noted(work, task, claim.number, Mended.DONE, f"it stands as {task.phase} again")
    outcome = task.read_outcome
    if outcome is None:
        outcome = Outcome(phase=Phase(task.phase), number=task.number, detail="found by the audit")
        task.outcome = outcome.model_dump_json(exclude_defaults=True)
    task.phase = outcome.phase
    task.ended_at = task.ended_at or work.now
    return noted(work, task, 0, Mended.DONE, f"phase and outcome both say {outcome.phase}")


def _without_claim(connection: Connection, key: str, now: datetime) -> Mending:
    """The number may still run: its claim is open again, and the agent says what became of it."""
    work = Work(connection, micros(now))
    work.lock_current([key])
    task = work.tasks.get(key)
    if task is None or task.final or task.phase not in CLAIMED:
        return AGREES
    if any(number > task.number for number in _open_numbers(connection, key)):
        return AGREES  # It is the task's number that is wrong: see `_other_number`.
    claim = work.claims.get(attempt_id(key, task.number))
    if claim is None:
        return _made_anew(work, task)
    if claim.open:
        return AGREES
    reopen(work, claim)
    work.ordered.add(claim.cluster)
    text = "its claim is open again, and its agent is asked"
    return noted(work, task, claim.number, Mended.ASKED, text)


def _made_anew(work: Work, task: TaskLine) -> Mending:
    if task.cluster is None or task.machine is None or task.number == 0:
        return Mending(Mended.NOT, "nothing says where its attempt is")
    number, phase = task.number, task.phase
    adopted = adopt(work, task, number, place_of(task.cluster, task.machine))
    if not adopted:
        return Mending(Mended.NOT, "its machine is not known")
    task.phase = phase
    text = "its claim is made anew, and its agent is asked"
    return noted(work, task, number, Mended.ASKED, text)


def _other_number(connection: Connection, key: str, now: datetime) -> Mending:
    """The number that a task has reached is the fence: lower ones are closed and told to stop."""
    work = Work(connection, micros(now))
    work.lock_tasks([key])
    task = work.tasks.get(key)
    if task is None:
        return AGREES
    open_ones = select(CLAIM.c.attempt).where(CLAIM.c.key == key).where(CLAIM.c.standing == "open")
    work.lock_claims(list(connection.scalars(open_ones)))
    claims = sorted((c for c in work.claims.values() if c.open), key=lambda claim: claim.number)
    current = None
    if claims and not task.final and claims[-1].number >= task.number:
        current = claims.pop()
        if task.phase in CLAIMED and task.number == current.number and not claims:
            return AGREES
        _stands_as(task, current)
    elif not claims:
        return AGREES
    for claim in claims:
        close(work, claim)
        end_closed(work, task, claim)
    closed = ", ".join(str(claim.number) for claim in claims)
    text = f"closed and told to stop: {closed}" if closed else f"number {task.number} is claimed"
    return noted(work, task, task.number, Mended.ASKED if closed else Mended.DONE, text)


def _open_numbers(connection: Connection, key: str) -> list[int]:
    of_task = select(CLAIM.c.number).where(CLAIM.c.key == key)
    return list(connection.scalars(of_task.where(CLAIM.c.standing == Standing.OPEN.value)))


def _stands_as(task: TaskLine, claim: ClaimLine) -> None:
    task.number = claim.number
    task.cluster, task.machine = claim.cluster, claim.machine
    admitted = claim.state == OfferState.ADMITTED
    task.phase = Phase.RUNNING if admitted else Phase.OFFERED
    if claim.stop_cause is not None:
        task.phase = Phase.STOPPING


# --- steps that healing by an agent's list takes too --------------------------------------------


def reopen(work: Work, claim: ClaimLine, standing: Standing = Standing.OPEN) -> None:
    """It holds room again, and quota where it is open; what was ordered about it is forgotten."""
    assert standing is not Standing.RELEASED
    before, quota = claim.holds_room, claim.open
    claim.standing, claim.vouched, claim.fenced = standing.value, 0, None
    claim.stop_cause, claim.stop_sent, claim.stop_epoch = None, 0, None
    claim.inquiry = claim.to_deliver = 1
    claim.changed = True
    if not before:
        work.take_room(claim.place, claim.room, 1)
    if claim.open and not quota:
        work.charge(claim.team, claim.room, 1)


def end_closed(work: Work, task: TaskLine, claim: ClaimLine) -> None:
    """A closed number that may run: told to stop, and its task not placed before it has."""
    assert not claim.open, claim
    order_stop(work, task, claim, StopCause.SUPERSEDED)
    if task.pending:
        wait_s = max(HELD_BACK_S, 2 * _grace_s(work.connection, claim.attempt))
        task.not_before = max(task.not_before, work.now + wait_s * 1_000_000)
        touch(work, task)


def adopt(work: Work, task: TaskLine, number: int, place: str) -> bool:
    """An open claim for an attempt that runs, or may: the task stands as claimed. False: no place.

    Its agent is asked about it: what has ended meanwhile is then reported again.
    """
    connection = work.connection
    machine = connection.execute(select(MACHINE).where(MACHINE.c.place == place)).one_or_none()
    body = connection.scalar(select(SPEC.c.body).where(SPEC.c.key == task.key))
    if machine is None or body is None:
        return False
    spec = read_spec(body)
    epoch = connection.scalar(select(CLUSTER.c.epoch).where(CLUSTER.c.name == machine.cluster))
    row = {
        "attempt": attempt_id(task.key, number),
        "key": task.key,
        "number": number,
        "team": task.team,
        "cluster": machine.cluster,
        "place": place,
        "epoch": epoch or 0,
        "standing": Standing.OPEN.value,
        "state": OfferState.ADMITTED.value,
        "on_loss": spec.on_loss.value,
        "grace_s": spec.grace_s,
        "neighbour": neighbour_text(spec),
        "extra": extra_text(spec.resources.extra),
        "inquiry": 1,
        "to_deliver": 1,
        "claimed_at": work.now,
        **dict(zip(COLUMNS, spec.resources.vector(), strict=True)),
    }
    connection.execute(insert(CLAIM), row)
    room = Room.of(spec.resources)
    work.take_room(place, room, 1)
    work.charge(task.team, room, 1)
    work.ordered.add(machine.cluster)
    task.number, task.phase = number, Phase.RUNNING
    task.cluster, task.machine = machine.cluster, machine.name
    touch(work, task)
    return True


def ask_agent(connection: Connection, attempt: str, now: datetime) -> Mending:
    """A claim whose attempt its agent does not list: it says again how that ended."""
    work, task, claim = _locked(connection, attempt, now)
    if task is None or claim is None or not claim.held or claim.state != OfferState.ADMITTED:
        return AGREES
    claim.inquiry = claim.to_deliver = 1
    claim.changed = True
    work.ordered.add(claim.cluster)
    return noted(work, task, claim.number, Mended.ASKED, "its agent is asked about it")


def _grace_s(connection: Connection, attempt: str) -> int:
    found = connection.scalar(select(CLAIM.c.grace_s).where(CLAIM.c.attempt == attempt))
    return int(found or 0)


def _locked(
    connection: Connection, attempt: str, now: datetime
) -> tuple[Work, TaskLine | None, ClaimLine | None]:
    work = Work(connection, micros(now))
    key, _ = split_attempt_id(attempt)
    work.lock_tasks([key])
    work.lock_claims([attempt])
    return work, work.tasks.get(key), work.claims.get(attempt)


def noted(work: Work, task: TaskLine, number: int, mended: Mended, how: str) -> Mending:
    """Write the work, and in the task's story what was done."""
    note(work, task, EventKind.MENDED, number, how)
    return _written(work, mended, how)


def _written(work: Work, mended: Mended, how: str) -> Mending:
    rings = write(work)
    return Mending(mended, how, rings, work.ordered)


_MENDERS: Mapping[Fault, Callable[[Connection, str, datetime], Mending]] = {
    Fault.USED_IS_NOT_THE_SUM: _used,
    Fault.OVER_CAPACITY: _over,
    Fault.QUOTA_IS_NOT_THE_SUM: _quota,
    Fault.CLAIMED_WITHOUT_OPEN_CLAIM: _without_claim,
    Fault.OPEN_CLAIM_OF_ANOTHER_NUMBER: _other_number,
    Fault.FINAL_WITHOUT_OUTCOME: _end,
    Fault.DELIVERS_WHAT_IS_RELEASED: _restless,
}
