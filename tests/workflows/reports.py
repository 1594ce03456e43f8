"""Reports of attempts on one machine, valid by default."""

from datetime import UTC, datetime

from domain.attempt import Ending, EndKind, StopCause
from domain.protocol import Ended, Fenced, Placed, Started
from domain.reasons import Reason

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def _ended(number: int, ending: Ending) -> Ended:
    return Ended(number=number, cluster="north", machine="m1", at=NOW, ending=ending)


def ended(number: int, code: int) -> Ended:
    reason = Reason.NONZERO_EXIT if code else None
    return _ended(number, Ending(kind=EndKind.EXITED, exit_code=code, reason=reason))


def stopped(number: int, cause: StopCause = StopCause.CANCEL) -> Ended:
    return _ended(number, Ending(kind=EndKind.STOPPED, stop_cause=cause))


def refused(number: int) -> Ended:
    return _ended(number, Ending(kind=EndKind.REFUSED, reason=Reason.AGENT_NO_ROOM))


def started(number: int) -> Started:
    return Started(number=number, cluster="north", machine="m1", at=NOW)


def placed(number: int) -> Placed:
    return Placed(number=number, cluster="north", machine="m1", at=NOW)


def fenced(number: int) -> Fenced:
    return Fenced(number=number, cluster="north", machine="m1", at=NOW)
