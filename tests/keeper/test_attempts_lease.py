"""What the keeper decides about its lease: deadline, freeze, answers and grants."""

import pytest

from domain.attempt import EndKind, StopCause
from domain.protocol import LeaseAnswer
from keeper.attempts import (
    Cleared,
    Freeze,
    Frozen,
    Kill,
    Launched,
    MoveDeadline,
    QuestionDue,
    Running,
    Thaw,
    next_due_ms,
)
from tests.keeper.attempt_builders import (
    LEASE_MS,
    WAITING,
    Played,
    ending_of,
    grant_of,
    start_of,
    stop_of,
)


def test_at_the_deadline_everything_stands_still_except_what_waits():
    played = Played().leased()
    attempt = played.running("a")
    waiting = played.running("b", **WAITING)
    assert played.tick(LEASE_MS - 1) == ()
    assert played.tick(LEASE_MS) == (Freeze(attempt),)
    assert isinstance(played.state.live[waiting].stage, Running)
    assert played.state.lease is None


def test_an_attempt_that_is_being_started_at_the_deadline_freezes_too():
    played = Played().leased()
    played.do(start_of())
    attempt = start_of().attempt
    assert played.tick(LEASE_MS) == (Freeze(attempt),)
    played.do(Launched(attempt))
    assert played.state.live[attempt].stage == Frozen()
    assert played.leased(epoch=2).effects[-1] == Thaw(attempt)
    assert played.state.live[attempt].stage == Running(since_ms=LEASE_MS)


def test_a_grace_does_not_outlive_the_deadline():
    played = Played().leased()
    attempt = played.running()
    played.at(LEASE_MS - 1).do(stop_of(attempt))
    assert played.tick(LEASE_MS) == (Kill(attempt),)


def test_a_stop_for_a_frozen_attempt_kills_it_unthawed():
    played = Played().leased()
    attempt = played.running()
    played.tick(LEASE_MS)
    assert played.do(stop_of(attempt)) == (Kill(attempt),)
    played.leased(epoch=2)
    assert Thaw(attempt) not in played.effects


def test_an_answer_counts_from_the_moment_the_question_was_sent():
    played = Played().leased()
    played.at(10_000).do(QuestionDue())
    answer = LeaseAnswer(question=played.state.questions_asked, epoch=1, remaining_ms=LEASE_MS)
    assert played.at(25_000).do(answer) == (MoveDeadline(70_000),)
    assert played.do(answer) == (), "again, it changes nothing"


def test_an_answer_never_shortens_a_lease():
    played = Played().leased()
    played.at(1_000).do(QuestionDue())
    number = played.state.questions_asked
    assert played.do(LeaseAnswer(question=number, epoch=1, remaining_ms=0)) == ()
    assert next_due_ms(played.state) == LEASE_MS


@pytest.mark.parametrize(
    ("epoch", "question", "now_ms"),
    [(2, 2, 20_000), (1, 99, 20_000), (1, 2, LEASE_MS)],
    ids=["of another epoch", "to no question", "after the deadline"],
)
def test_an_answer_extends_nothing(epoch, question, now_ms):
    played = Played().leased()
    played.at(10_000).do(QuestionDue())
    played.at(now_ms)
    answer = LeaseAnswer(question=question, epoch=epoch, remaining_ms=LEASE_MS)
    assert MoveDeadline(70_000) not in played.do(answer)


def test_after_a_restart_an_answer_begins_no_lease():
    played = Played()
    played.do(QuestionDue())
    played.do(LeaseAnswer(question=1, epoch=0, remaining_ms=LEASE_MS))
    assert played.state.lease is None


def test_a_question_says_which_lease_is_held():
    played = Played()
    played.do(QuestionDue())
    assert played.effects[-1].message.epoch == 0
    played.leased(epoch=7)
    attempt = played.running()
    played.do(QuestionDue())
    assert played.effects[-1].message.epoch == 7
    assert played.effects[-1].message.running == (attempt,)
    played.tick(LEASE_MS)
    played.do(QuestionDue())
    assert played.effects[-1].message.epoch == 0


def test_a_grant_thaws_what_is_open_and_kills_what_is_closed_unthawed():
    played = Played().leased()
    open_one, closed_one = played.running("a"), played.running("b")
    waiting = played.running("w", **WAITING)
    played.tick(LEASE_MS)
    played.at(100_000).do(QuestionDue())
    effects = played.at(101_000).do(grant_of(2, 2, LEASE_MS, closed_one, waiting, "d/never#1"))
    assert effects == (Kill(closed_one), Kill(waiting), MoveDeadline(160_000), Thaw(open_one))
    played.exited(closed_one, 137, by_signal=True)
    played.do(Cleared(closed_one))
    assert ending_of(played, closed_one).kind is EndKind.STOPPED
    assert ending_of(played, closed_one).stop_cause is StopCause.SUPERSEDED


def test_a_grant_that_comes_too_late_kills_what_is_closed_and_begins_nothing():
    played = Played().leased()
    attempt, closed_one = played.running("a"), played.running("b")
    played.tick(LEASE_MS)
    played.do(QuestionDue())
    effects = played.at(3 * LEASE_MS).do(grant_of(2, 2, LEASE_MS, closed_one))
    assert effects == (Kill(closed_one),)
    assert played.state.lease is None
    assert played.state.live[attempt].stage == Frozen(LEASE_MS)


def test_a_grant_of_an_older_epoch_changes_nothing():
    played = Played().leased(epoch=5)
    attempt = played.running()
    played.do(QuestionDue())
    assert played.do(grant_of(2, 4, 10 * LEASE_MS, attempt)) == ()
    assert next_due_ms(played.state) == LEASE_MS


def test_a_grant_of_the_same_epoch_revives_a_lease_that_has_passed():
    played = Played().leased()
    attempt = played.running()
    played.tick(LEASE_MS)
    played.leased()
    assert played.effects[-1] == Thaw(attempt)
