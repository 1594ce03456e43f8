"""Does the ledger add up? Compares sums with what they are sums of. Reads only, heals nothing."""

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, select

from domain.attempt import Phase
from domain.ids import attempt_id
from domain.resources import COLUMNS
from store.lines import Standing
from store.machines import CAPACITY
from store.room import Room
from store.tables import CLAIM, HELD, MACHINE, TASK, USAGE
from store.writing import USED


class Fault(StrEnum):
    """What does not add up."""

    USED_IS_NOT_THE_SUM = "used_is_not_the_sum"
    OVER_CAPACITY = "over_capacity"
    QUOTA_IS_NOT_THE_SUM = "quota_is_not_the_sum"
    CLAIMED_WITHOUT_OPEN_CLAIM = "claimed_without_open_claim"
    OPEN_CLAIM_OF_ANOTHER_NUMBER = "open_claim_of_another_number"
    FINAL_WITHOUT_OUTCOME = "final_without_outcome"
    DELIVERS_WHAT_IS_RELEASED = "delivers_what_is_released"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that should not be, and where."""

    fault: Fault
    subject: str
    expected: str
    found: str


_HELD_CLAIMS = select(CLAIM).where(HELD)
_RESTLESS = select(CLAIM.c.attempt).where(CLAIM.c.standing == "released", CLAIM.c.to_deliver == 1)
_LIVE_TASKS = select(TASK.c.key, TASK.c.number, TASK.c.phase, TASK.c.outcome)


def audit(connection: Connection) -> list[Difference]:
    """Every difference; none is how it always is between transactions."""
    held = connection.execute(_HELD_CLAIMS).all()
    released = connection.scalars(_RESTLESS)
    return [
        *_machines(connection, held),
        *_usage(connection, held),
        *_tasks(connection, held),
        *(Difference(Fault.DELIVERS_WHAT_IS_RELEASED, a, "0", "1") for a in released),
    ]


def _machines(connection: Connection, held: Any) -> list[Difference]:
    sums: dict[str, Room] = defaultdict(Room)
    for row in held:
        if row.standing == Standing.OPEN or not row.vouched:
            sums[row.place].add(_claim_room(row))
    found = []
    for row in connection.execute(select(MACHINE)):
        values = row._mapping
        used = _room(values, USED, row.used_extra)
        if _text(used) != _text(sums[row.place]):
            fault = Fault.USED_IS_NOT_THE_SUM
            found.append(Difference(fault, row.place, _text(sums[row.place]), _text(used)))
        capacity = _room(values, CAPACITY, row.cap_extra)
        if not row.shrunk and not Room().holds(used, capacity):
            found.append(Difference(Fault.OVER_CAPACITY, row.place, _text(capacity), _text(used)))
    return found


def _usage(connection: Connection, held: Any) -> list[Difference]:
    sums: dict[str, Room] = defaultdict(Room)
    for row in held:
        if row.standing == Standing.OPEN:
            sums[row.team].add(_claim_room(row))
    charged = {
        row.team: _room(row._mapping, COLUMNS, row.extra)
        for row in connection.execute(select(USAGE))
    }
    pairs = {team: (sums[team], charged.get(team, Room())) for team in {*sums, *charged}}
    return [
        Difference(Fault.QUOTA_IS_NOT_THE_SUM, team, _text(expected), _text(found))
        for team, (expected, found) in sorted(pairs.items())
        if _text(expected) != _text(found)
    ]


def _tasks(connection: Connection, held: Any) -> list[Difference]:
    opened: dict[str, list[str]] = defaultdict(list)
    for row in held:
        if row.standing == Standing.OPEN:
            opened[row.key].append(row.attempt)
    found = []
    for row in connection.execute(_LIVE_TASKS):
        phase = Phase(row.phase)
        claimed = not phase.final and phase is not Phase.PENDING
        expected = [attempt_id(row.key, row.number)] if claimed else []
        if opened[row.key] != expected:
            missing = claimed and not opened[row.key]
            fault = (
                Fault.CLAIMED_WITHOUT_OPEN_CLAIM if missing else Fault.OPEN_CLAIM_OF_ANOTHER_NUMBER
            )
            found.append(Difference(fault, row.key, str(expected), str(opened[row.key])))
        if phase.final != (row.outcome is not None):
            found.append(
                Difference(Fault.FINAL_WITHOUT_OUTCOME, row.key, str(phase), str(row.outcome))
            )
    return found


def _claim_room(row: Any) -> Room:
    return _room(row._mapping, COLUMNS, row.extra)


def _room(values: Any, columns: tuple[str, ...], extra: str | None) -> Room:
    cpu_milli, memory_mib, gpu, disk_mib, net_mbps = (values[name] for name in columns)
    return Room.of_row((cpu_milli, memory_mib, gpu, disk_mib, net_mbps), extra)


def _text(room: Room) -> str:
    return f"{room.vector} {dict(sorted(room.amounts().items()))}"
