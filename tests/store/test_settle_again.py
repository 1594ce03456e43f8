"""A workflow task that is done again asks its settle again, at another instant or after a reset."""

from domain.attempt import Outcome, Phase
from domain.claims import Finish, Requeue, Settled
from domain.retry import Spent
from tests.store.world import EXITED, FAILED, World, cancelled, succeeded


def test_the_same_ending_at_another_instant_is_mine_again(memory: World) -> None:
    memory.cluster()
    memory.running()
    assert memory.settle(FAILED).mine
    memory.later(7)
    again = memory.settle(FAILED, Requeue(not_before=memory.now))
    assert again == Settled(mine=True, closed=1)
    assert memory.enqueue().spent == Spent(failures=1)


def test_it_names_the_outcome_that_stands_in_the_row(memory: World) -> None:
    memory.cluster()
    memory.running()
    memory.settle(EXITED, succeeded())
    memory.later(7)
    assert memory.settle(EXITED).final == succeeded().outcome


def test_a_run_that_now_wants_the_end_gets_it_while_the_row_waits(memory: World) -> None:
    memory.cluster()
    memory.running()
    memory.settle(FAILED)
    wanted = Finish(outcome=cancelled(1))
    assert memory.settle(FAILED, wanted).final == Outcome(phase=Phase.CANCELLED, number=1)
    assert memory.phase() is Phase.CANCELLED


def test_a_run_that_now_wants_the_end_is_late_once_the_row_has_gone_on(memory: World) -> None:
    memory.cluster()
    memory.running()
    memory.settle(FAILED)
    memory.claim()
    assert memory.settle(FAILED, Finish(outcome=cancelled(1))) == Settled(mine=False, closed=1)
    assert memory.phase() is Phase.OFFERED
