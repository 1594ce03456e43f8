"""What a task says that ended because a budget other than the user's was spent."""

from domain.attempt import Phase, StopCause
from domain.reasons import Reason
from tests.domain.builders import FREE, Story, refused, stopped


def test_the_eviction_beyond_the_limit_ends_the_task_and_says_so():
    """L47"""
    task = Story(retries={"preemptions": 2}).hears(FREE)
    for number in (1, 2):
        assert task.settles(stopped(number, StopCause.PREEMPT)).phase is Phase.PENDING
    task.settles(stopped(3, StopCause.PREEMPT))
    assert (task.phase, task.outcome.reason) == (Phase.FAILED, Reason.BUDGET_SPENT)
    assert task.outcome.detail == "3 ended by preemption"


def test_the_reason_of_the_last_ending_is_kept_where_it_gave_one():
    task = Story(retries={"refusals": 0}).hears(FREE).settles(refused(1))
    assert (task.phase, task.outcome.reason) == (Phase.FAILED, Reason.AGENT_NO_ROOM)
