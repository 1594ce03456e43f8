"""States, reports and answers of one task, valid by default: one keyword per difference."""

from datetime import UTC, datetime, timedelta
from typing import Any

from domain.attempt import Ending, EndKind, Outcome, Phase, StopCause
from domain.claims import (
    Enqueued,
    LedgerAnswer,
    LedgerOperation,
    LiveAttempt,
    Settled,
    WithdrawAnswer,
    Withdrawn,
)
from domain.lifecycle import Event, begin, check, step
from domain.protocol import Ended, Fenced, Placed, Progress, Started, StopRequested, TaskMessage
from domain.reasons import Reason
from domain.stages import TaskState, phase_of
from domain.task import TaskSpec, body_digest

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
PLACE: dict[str, Any] = {"cluster": "north", "machine": "m1"}


def a_spec(**changes: Any) -> TaskSpec:
    given = {"team": "blue", "id": "t1", "command": ["/bin/true"], **changes}
    return TaskSpec.model_validate(given)


def a_state(**changes: Any) -> TaskState:
    spec = changes.pop("spec", None) or a_spec()
    return TaskState(spec=spec, digest=body_digest(spec), **changes)


def placed(number: int) -> Placed:
    return Placed(number=number, at=NOW, **PLACE)


def started(number: int) -> Started:
    return Started(number=number, at=NOW, **PLACE)


def progress(number: int, note: str = "half") -> Progress:
    return Progress(number=number, at=NOW, note=note, **PLACE)


def fenced(number: int) -> Fenced:
    return Fenced(number=number, at=NOW, **PLACE)


def stop_requested(number: int, cause: StopCause = StopCause.PREEMPT) -> StopRequested:
    return StopRequested(number=number, at=NOW, cause=cause, **PLACE)


def exited(number: int, code: int) -> Ended:
    reason = Reason.NONZERO_EXIT if code else None
    return _ended(number, Ending(kind=EndKind.EXITED, exit_code=code, reason=reason))


def refused(number: int) -> Ended:
    return _ended(number, Ending(kind=EndKind.REFUSED, reason=Reason.AGENT_NO_ROOM))


def lost(number: int) -> Ended:
    return _ended(number, Ending(kind=EndKind.LOST, reason=Reason.KEEPER_LOST))


def stopped(number: int, cause: StopCause, code: int | None = None) -> Ended:
    return _ended(number, Ending(kind=EndKind.STOPPED, stop_cause=cause, exit_code=code))


def _ended(number: int, ending: Ending) -> Ended:
    return Ended(number=number, at=NOW, ending=ending, started_at=NOW, **PLACE)


def live(number: int, admitted: bool = True, stop: StopCause | None = None) -> LiveAttempt:
    return LiveAttempt(number=number, admitted=admitted, stop_cause=stop, **PLACE)


def an_outcome(phase: Phase = Phase.SUCCEEDED, **changes: Any) -> Outcome:
    return Outcome(phase=phase, **changes)


FREE = Enqueued(closed=0)
STOPPING = WithdrawAnswer.STOPPING


class Story:
    """One task told in events; the teller gives the answers, `asks` is the last question."""

    def __init__(self, **spec: Any) -> None:
        self.now = NOW
        self.state, effects = begin(a_state(spec=a_spec(**spec)), self.now)
        self.asks: LedgerOperation | None = effects[0]

    def hears(self, *whats: TaskMessage | LedgerAnswer, chance: float = 0.0) -> "Story":
        for what in whats:
            self.now += timedelta(seconds=1)
            self.state, effects = step(self.state, Event(what=what, at=self.now, chance=chance))
            check(self.state)
            self.asks = effects[0] if effects else None
        return self

    def settles(self, report: TaskMessage, chance: float = 0.0) -> "Story":
        """The report of an open attempt, and the ledger's yes."""
        self.hears(report, chance=chance)
        number = getattr(report, "number", 0)
        return self.hears(Settled(mine=True, closed=number))

    def withdrawn(self, answer: WithdrawAnswer, **more: Any) -> "Story":
        return self.hears(Withdrawn(answer=answer, **more))

    @property
    def phase(self) -> Phase:
        return phase_of(self.state.stage)

    @property
    def outcome(self) -> Outcome:
        assert self.phase.final, self.state.stage
        outcome: Outcome = self.state.stage.outcome  # type: ignore[union-attr]
        return outcome


def running(number: int = 1, **spec: Any) -> Story:
    """A task whose attempt runs."""
    return Story(**spec).hears(FREE, placed(number), started(number))
