"""One locked task row and one locked claim row, in memory: what they are now and what that means.

Changes of several rows are in `store.transitions`; reading, locking and writing in `store.locking`.
"""

from dataclasses import dataclass
from enum import StrEnum

from domain.attempt import Outcome, Phase, StopCause
from domain.claims import LiveAttempt
from store.mapping import place_of, read_outcome, split_place
from store.room import Room


class Standing(StrEnum):
    """What a claim holds: room and quota; room alone; nothing."""

    OPEN = "open"
    REMNANT = "remnant"
    RELEASED = "released"


class OfferState(StrEnum):
    """What the agent has said of the offer."""

    OFFERED = "offered"
    REFUSED = "refused"
    """Its report is on the way and will settle the number."""
    ADMITTED = "admitted"


@dataclass(slots=True)
class TaskLine:
    """The columns of a task that may change, and those that decisions need."""

    key: str
    team: str
    partition: int
    phase: str
    band: int
    digest: str
    shape: str
    number: int
    asked_at: int
    not_before: int
    not_after: int | None
    pending_since: int
    updated_at: int
    ended_at: int | None
    cluster: str | None
    machine: str | None
    spent: str
    outcome: str | None
    events: int
    changed: bool = False

    @property
    def pending(self) -> bool:
        """It waits for a machine."""
        return self.phase == Phase.PENDING

    @property
    def final(self) -> bool:
        """It has ended for ever."""
        return self.outcome is not None

    @property
    def claimed(self) -> bool:
        """Its last number is open."""
        return not self.pending and not self.final

    @property
    def closed(self) -> int:
        """The last closed number."""
        return self.number - 1 if self.claimed else self.number

    @property
    def read_outcome(self) -> Outcome | None:
        """How it ended, where it has."""
        return read_outcome(self.outcome)


@dataclass(slots=True)
class ClaimLine:
    """The columns of a claim that may change, and those that decisions need."""

    attempt: str
    key: str
    number: int
    team: str
    cluster: str
    place: str
    standing: str
    state: str
    on_loss: str
    cpu_milli: int
    memory_mib: int
    gpu: int
    disk_mib: int
    net_mbps: int
    extra: str | None
    to_deliver: int
    stop_cause: str | None
    stop_sent: int
    stop_epoch: int | None
    inquiry: int
    adopted: int
    fenced: str | None
    vouched: int
    claimed_at: int
    admitted_at: int | None
    started_at: int | None
    ended_at: int | None
    settled_at: int | None
    ending: str | None
    late_ending: str | None
    changed: bool = False

    @property
    def open(self) -> bool:
        """Its number is the task's, and its reports count."""
        return self.standing == Standing.OPEN

    @property
    def held(self) -> bool:
        """It may still run, as far as is known."""
        return self.standing != Standing.RELEASED

    @property
    def holds_room(self) -> bool:
        """It is part of its machine's used columns."""
        return self.open or (self.standing == Standing.REMNANT and not self.vouched)

    @property
    def machine(self) -> str:
        """The machine's own name."""
        return split_place(self.place)[1]

    @property
    def room(self) -> Room:
        """What it asks of its machine and its team's quota."""
        vector = (self.cpu_milli, self.memory_mib, self.gpu, self.disk_mib, self.net_mbps)
        return Room.of_row(vector, self.extra)

    @property
    def live(self) -> LiveAttempt:
        """The attempt as the workflow that adopts it sees it."""
        return LiveAttempt(
            number=self.number,
            cluster=self.cluster,
            machine=self.machine,
            admitted=self.state == OfferState.ADMITTED,
            stop_cause=StopCause(self.stop_cause) if self.stop_cause else None,
        )


@dataclass(frozen=True, slots=True)
class NewClaim:
    """A claim about to be made: what `store.transitions` cannot read from the locked rows."""

    task: TaskLine
    cluster: str
    machine: str
    epoch: int
    on_loss: str
    grace_s: int
    neighbour: str | None
    room: Room
    extra: str | None

    @property
    def place(self) -> str:
        """The machine's place."""
        return place_of(self.cluster, self.machine)
