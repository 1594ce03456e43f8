"""What the keeper decides: scenarios of one machine, told in events and instants."""

import pytest

from domain.attempt import EndKind, StopCause
from domain.protocol import Forget
from domain.reasons import Reason
from keeper.attempts import (
    LIVE_ATTEMPTS_MAX,
    TOMBSTONES_MAX,
    Cleared,
    Connected,
    Freeze,
    Frozen,
    Keeper,
    Kill,
    Launch,
    Launched,
    LaunchFailed,
    Live,
    RecordEnded,
    RecordForgotten,
    Send,
    ShutDown,
    Terminate,
    Ticked,
    died_with_keeper,
    next_due_ms,
    restored,
)
from tests.keeper.attempt_builders import (
    LEASE_MS,
    Played,
    ending_of,
    instant,
    start_of,
    stop_of,
)

# --- starting -----------------------------------------------------------------------------------


def test_without_a_lease_nothing_starts():
    played = Played()
    assert played.do(start_of()) == ()
    assert not played.state.live


def test_a_known_number_is_not_started_again():
    played = Played().leased()
    attempt = played.running()
    assert played.do(start_of()) == ()
    assert list(played.state.live) == [attempt]


def test_a_start_of_an_ended_number_sends_its_ending_again_even_after_it_was_forgotten():
    played = Played().leased()
    attempt = played.running()
    played.exited(attempt)
    played.do(Cleared(attempt))
    ended = played.state.ended[attempt]
    assert played.do(start_of()) == (Send(ended),)
    assert played.do(Forget(attempts=(attempt, "blue/other#1"))) == (RecordForgotten((attempt,)),)
    assert played.do(start_of()) == (Send(ended),)
    assert not played.state.live
    assert not played.state.ended


def test_a_stop_that_comes_before_its_start_leaves_a_tombstone():
    played = Played().leased()
    attempt = start_of().attempt
    record, send = played.do(stop_of(attempt))
    assert isinstance(record, RecordEnded)
    assert send == Send(record.ended)
    assert record.ended.ending.kind is EndKind.STOPPED
    assert record.ended.ending.stop_cause is StopCause.PREEMPT
    assert record.ended.started_at is None
    assert played.do(start_of()) == (send,)
    played.do(Forget(attempts=(attempt,)))
    assert played.do(start_of()) == (send,)
    assert played.do(stop_of(attempt)) == (send,)


def test_what_died_with_an_earlier_keeper_is_not_started_again():
    died = died_with_keeper(start_of().attempt, instant(0).at)
    played = Played(restored((), (died,))).leased()
    assert played.do(start_of()) == (Send(died),)
    assert died.ending.kind is EndKind.LOST
    assert died.ending.reason is Reason.KEEPER_LOST


def test_a_start_that_fails_ends_with_its_typed_reason():
    played = Played().leased()
    played.do(start_of())
    attempt = start_of().attempt
    played.do(LaunchFailed(attempt, Reason.NO_SUCH_COMMAND, "frobnicate"))
    assert ending_of(played, attempt).kind is EndKind.EXITED
    assert ending_of(played, attempt).reason is Reason.NO_SUCH_COMMAND
    assert ending_of(played, attempt).exit_code is None
    assert not ending_of(played, attempt).success


def test_a_start_that_fails_after_a_stop_came_is_stopped():
    played = Played().leased()
    played.do(start_of())
    attempt = start_of().attempt
    assert played.do(stop_of(attempt)) == (Terminate(attempt),)
    played.do(LaunchFailed(attempt, Reason.CANNOT_START))
    assert ending_of(played, attempt).kind is EndKind.STOPPED


def test_one_attempt_too_many_ends_at_once():
    live = {f"d/{n}#1": Live(f"d/{n}#1", 0, None, True) for n in range(LIVE_ATTEMPTS_MAX)}
    played = Played(Keeper(live=live)).leased()
    played.do(start_of())
    assert ending_of(played, start_of().attempt).reason is Reason.CANNOT_START


# --- exit against stop --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "by_signal", "reason"),
    [(0, False, None), (3, False, Reason.NONZERO_EXIT), (137, True, Reason.KILLED_BY_SIGNAL)],
)
def test_an_exit_seen_before_the_stop_is_an_exit(code, by_signal, reason):
    played = Played().leased()
    attempt = played.running()
    assert played.exited(attempt, code, by_signal) == (Kill(attempt),)
    assert played.do(stop_of(attempt)) == ()
    played.do(Cleared(attempt))
    assert ending_of(played, attempt).kind is EndKind.EXITED
    assert ending_of(played, attempt).exit_code == code
    assert ending_of(played, attempt).reason is reason
    assert ending_of(played, attempt).success is (code == 0)


def test_an_exit_after_the_stop_is_stopped_whatever_the_code():
    played = Played().leased()
    attempt = played.running()
    assert played.do(stop_of(attempt)) == (Terminate(attempt),)
    assert played.exited(attempt, 0) == ()
    assert attempt in played.state.live, "its tree is still there"
    played.do(Cleared(attempt))
    assert ending_of(played, attempt).kind is EndKind.STOPPED
    assert ending_of(played, attempt).exit_code == 0
    assert not ending_of(played, attempt).success


def test_the_first_cause_stays_except_that_cancel_overrides():
    played = Played().leased()
    attempt = played.running()
    played.do(stop_of(attempt, StopCause.DRAIN))
    played.do(stop_of(attempt, StopCause.PREEMPT))
    other = played.forked()
    played.exited(attempt)
    played.do(Cleared(attempt))
    assert ending_of(played, attempt).stop_cause is StopCause.DRAIN
    other.do(stop_of(attempt, StopCause.CANCEL))
    other.exited(attempt)
    other.do(Cleared(attempt))
    assert ending_of(other, attempt).stop_cause is StopCause.CANCEL
    assert ending_of(other, attempt).reason is Reason.CANCELLED_BY_USER


def test_after_its_grace_a_tree_is_killed_once():
    played = Played().leased()
    attempt = played.running()
    played.do(stop_of(attempt, grace_s=5))
    assert next_due_ms(played.state) == 5_000
    assert played.tick(4_999) == ()
    assert played.tick(5_000) == (Kill(attempt),)
    assert played.tick(6_000) == ()


def test_a_second_stop_may_shorten_the_grace_and_never_lengthens_it():
    played = Played().leased()
    attempt = played.running()
    played.do(stop_of(attempt, grace_s=30))
    played.do(stop_of(attempt, grace_s=3_600))
    assert next_due_ms(played.state) == 30_000
    played.do(stop_of(attempt, grace_s=1))
    assert played.tick(1_000) == (Kill(attempt),)


def test_a_stop_answered_by_the_main_child_leaves_the_rest_of_the_tree_its_grace():
    played = Played().leased()
    attempt = played.running()
    played.do(stop_of(attempt, grace_s=5))
    assert played.exited(attempt) == ()
    assert played.tick(5_000) == (Kill(attempt),)
    played.do(Cleared(attempt))
    assert ending_of(played, attempt).kind is EndKind.STOPPED


# --- run timeout --------------------------------------------------------------------------------


def test_the_run_timeout_counts_from_the_start_of_the_child():
    played = Played().leased(remaining_ms=1_000_000)
    played.do(start_of(run_timeout_s=60, grace_s=7))
    attempt = start_of().attempt
    played.at(50_000).do(Launched(attempt))
    assert played.tick(109_999) == ()
    assert played.tick(110_000) == (Terminate(attempt),)
    assert played.tick(117_000) == (Kill(attempt),)
    played.exited(attempt, 137, by_signal=True)
    played.do(Cleared(attempt))
    assert ending_of(played, attempt).stop_cause is StopCause.RUN_TIMEOUT
    assert ending_of(played, attempt).reason is Reason.RUN_TIMEOUT


def test_frozen_time_does_not_count_towards_the_run_timeout():
    played = Played().leased(remaining_ms=40_000)
    attempt = played.running(run_timeout_s=60)
    played.tick(40_000)
    played.at(1_000_000).leased(epoch=2)
    assert played.tick(1_019_999) == ()
    assert played.tick(1_020_000) == (Terminate(attempt),)


def test_a_keeper_that_slept_past_its_deadline_does_not_charge_the_sleep():
    played = Played().leased(remaining_ms=40_000)
    attempt = played.running(run_timeout_s=60)
    assert played.tick(500_000) == (Freeze(attempt),)
    assert played.state.live[attempt].stage == Frozen(ran_ms=40_000)


# --- endings and connections --------------------------------------------------------------------


def test_endings_are_sent_again_at_each_connection_until_they_are_forgotten():
    played = Played().leased()
    over, live = played.running("a"), played.running("b")
    played.exited(over)
    played.do(Cleared(over))
    sent = [effect.message.attempt for effect in played.do(Connected())]
    assert sent == [live, over]
    played.do(Forget(attempts=(over,)))
    assert [effect.message.attempt for effect in played.do(Connected())] == [live]


def test_tombstones_are_bounded_and_the_oldest_go_first():
    played = Played()
    for number in range(TOMBSTONES_MAX + 2):
        attempt = start_of(number=number + 1).attempt
        played.do(stop_of(attempt))
        played.do(Forget(attempts=(attempt,)))
    assert len(played.state.tombstones) == TOMBSTONES_MAX
    assert start_of(number=2).attempt not in played.state.tombstones
    assert start_of(number=3).attempt in played.state.tombstones


def test_a_restart_has_no_lease_and_nothing_live_and_keeps_its_endings():
    played = Played().leased()
    attempt = played.running()
    played.exited(attempt)
    played.do(Cleared(attempt))
    again = Played(restored(tuple(played.state.ended.values()), ()))
    assert again.state.lease is None
    assert not again.state.live
    assert [effect.message.attempt for effect in again.do(Connected())] == [attempt]


def test_a_shutdown_stops_everything_with_a_bounded_grace_and_starts_nothing_more():
    played = Played().leased()
    patient, hasty = played.running("a", grace_s=600), played.running("b", grace_s=1)
    goodbye, *stops = played.do(ShutDown(grace_ms_max=10_000))
    assert goodbye.message.leaving
    assert stops == [Terminate(patient), Terminate(hasty)]
    played.do(start_of("c"))
    crossed = ending_of(played, start_of("c").attempt)
    assert (crossed.kind, crossed.stop_cause) == (EndKind.STOPPED, StopCause.SHUT_DOWN)
    assert played.tick(1_000) == (Kill(hasty),)
    assert played.tick(10_000) == (Kill(patient),)
    played.exited(patient)
    played.do(Cleared(patient))
    assert ending_of(played, patient).stop_cause is StopCause.SHUT_DOWN


def test_the_wall_time_of_an_attempt_is_measured_from_its_start():
    played = Played().leased()
    played.do(start_of())
    attempt = start_of().attempt
    played.at(1_000).do(Launched(attempt))
    played.at(3_500).exited(attempt)
    played.at(4_000).do(Cleared(attempt))
    assert ending_of(played, attempt).usage.wall_ms == 3_000
    assert played.state.ended[attempt].started_at == instant(1_000).at


def test_time_alone_is_due_only_where_something_depends_on_it():
    played = Played()
    assert next_due_ms(played.state) is None
    played.leased()
    assert next_due_ms(played.state) == LEASE_MS
    played.running(run_timeout_s=5)
    assert next_due_ms(played.state) == 5_000


def test_what_cannot_happen_is_an_error_of_ours():
    played = Played().leased()
    with pytest.raises(AssertionError, match="not live"):
        played.do(Cleared("default/t#1"))
    attempt = played.running()
    with pytest.raises(AssertionError):
        played.do(Cleared(attempt))
    with pytest.raises(AssertionError, match="twice"):
        played.do(Launched(attempt))
    assert isinstance(played.do(Ticked()), tuple)
    assert Launch(start_of()) in played.effects
