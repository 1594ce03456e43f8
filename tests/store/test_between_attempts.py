"""Between two attempts a task has not ended: readers are told when the next may start."""

from datetime import timedelta

from domain.attempt import Phase
from domain.claims import Requeue
from domain.views import EventKind
from tests.store.world import FAILED, LOST, World, succeeded


def test_readers_see_when_the_next_attempt_may_start_and_one_end_only(memory: World) -> None:
    """L55"""
    memory.cluster()
    memory.running()
    for number, ending in ((1, FAILED), (2, LOST)):
        next_at = memory.now + timedelta(seconds=30)
        memory.settle(ending, Requeue(not_before=next_at), number=number)
        view = memory.task()
        assert (view.phase, view.phase.final) == (Phase.PENDING, False)
        assert (view.outcome, view.ended_at, view.not_before) == (None, None, next_at)
        memory.later(30)
        assert memory.claim() == number + 1
        memory.admit(number=number + 1)
    memory.settle(then=succeeded(3), number=3)
    assert memory.task().ended_at == memory.now
    assert memory.story().count(EventKind.FINISHED) == 1
