"""Silence counted over an hour of virtual time: flapping links, and schedulers that restart."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from domain.cluster import ClusterState, begin, check, step
from domain.protocol import Heartbeat
from domain.supervision import (
    ArmSlice,
    ArmSuspicion,
    BrakeSeen,
    ClusterEvent,
    Fence,
    FenceAnswer,
    LeaseTerms,
    LookAtBrake,
    MarkSuspect,
    Opened,
    PageLoss,
    Reach,
    SliceEnded,
    SuspicionDue,
)

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
TERMS = LeaseTerms()
HEARTBEAT = timedelta(seconds=10)
HOUR = timedelta(hours=1)


@dataclass
class Watch:
    """One cluster's supervision on a virtual clock; its timers fire when they are due."""

    hears: Callable[[timedelta], bool]
    """Whether the heartbeat sent at this time after T0 arrives."""
    restarts: Sequence[timedelta] = ()
    """When the scheduler is restarted: what is not in the state is forgotten."""
    state: ClusterState = field(
        default_factory=lambda: ClusterState(
            cluster="north",
            reach=Reach.REACHABLE,
            epoch=1,
            instance="a1",
            granted=True,
            heard_at=T0,
            slice_began=T0,
        )
    )
    at: datetime = T0
    due: list[tuple[datetime, int, ClusterEvent | str]] = field(default_factory=list)
    count: int = 0
    suspected: list[timedelta] = field(default_factory=list)
    fenced: list[timedelta] = field(default_factory=list)

    def run(self, until: timedelta = HOUR) -> "Watch":
        """Let time pass."""
        self._at(T0 + TERMS.slice, SliceEnded(began=T0))
        for moment in self.restarts:
            self._at(T0 + moment, "restart")
        for beat in range(1, until // HEARTBEAT):
            self._at(T0 + beat * HEARTBEAT, "heartbeat")
        while self.due:
            self.at, _, event = heapq.heappop(self.due)
            if self.at > T0 + until:
                break
            self._happens(event)
        return self

    def _happens(self, event: ClusterEvent | str) -> None:
        if event == "heartbeat":
            if self.hears(self.at - T0):
                self._take(Heartbeat(instance="a1", epoch=1, seq=1))
        elif event == "restart":
            # As continue-as-new does it: through JSON, and with timers that are armed again.
            kept = ClusterState.model_validate_json(self.state.model_dump_json())
            self.due = [d for d in self.due if isinstance(d[2], str)]
            heapq.heapify(self.due)
            self.state, _ = begin(kept)
            reach = self.state.reach
            self._take(Opened(terms=TERMS, reach=reach, epoch=1, instance="a1"))
        else:
            assert not isinstance(event, str)
            self._take(event)

    def _take(self, event: ClusterEvent) -> None:
        queue = [event]
        while queue:
            self.state, effects = step(self.state, queue.pop(0), self.at)
            check(self.state)
            for effect in effects:
                match effect:
                    case ArmSlice(began=began, wait=wait):
                        self._at(self.at + wait, SliceEnded(began=began))
                    case ArmSuspicion(heard_at=heard_at, wait=wait):
                        due = self.at + wait
                        self._at(due, SuspicionDue(heard_at=heard_at, due=due))
                    case MarkSuspect():
                        self.suspected.append(self.at - T0)
                    case LookAtBrake():
                        queue.append(BrakeSeen(braked=False))
                    case Fence():
                        self.fenced.append(self.at - T0)
                        queue.append(FenceAnswer(fenced=True))
                    case PageLoss():
                        pass

    def _at(self, when: datetime, event: ClusterEvent | str) -> None:
        self.count += 1
        heapq.heappush(self.due, (when, self.count, event))


@pytest.mark.parametrize("flap_s", [5, 15])
def test_a_link_that_flaps_once_a_minute_for_an_hour_replaces_nothing(flap_s: int) -> None:
    """L57"""
    watch = Watch(lambda since: since.total_seconds() % 60 >= flap_s).run()
    assert (watch.suspected, watch.fenced) == ([], [])


def test_each_contact_starts_the_wait_for_loss_anew() -> None:
    """L57: silent for 50 s of each minute it is suspected, and never lost."""
    watch = Watch(lambda since: since.total_seconds() % 60 == 0).run()
    assert len(watch.suspected) > 50
    assert watch.fenced == []


def test_a_restart_neither_shortens_nor_lengthens_the_wait() -> None:
    """L59"""
    silent = timedelta(minutes=1)
    undisturbed = Watch(lambda since: since < silent).run().fenced
    assert len(undisturbed) == 1
    for half in (20, 30, 45, 60):
        moments = [silent + timedelta(seconds=second) for second in (half, half + 7, half + 13)]
        disturbed = Watch(lambda since: since < silent, restarts=moments).run().fenced
        assert disturbed == undisturbed
