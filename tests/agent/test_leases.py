"""Leases, grants, silence, loss and the brake, as the agent decides them."""

from agent.admission import Beaten, BrakeLifted, Terms, Ticked, leased
from domain.attempt import Ending, EndKind, StopCause
from domain.protocol import Grant, KeeperGrant, LeaseAnswer, StartAttempt, StopAttempt
from domain.reasons import Reason
from domain.task import OnLoss
from tests.agent.bench import Bench, a_bench, a_stop, an_offer, running

FENCE_MS = Terms().fence_ms


# --- the agent's own lease ------------------------------------------------------------------------


def test_a_lease_begins_only_with_a_grant() -> None:
    bench = Bench()
    bench.tell(Beaten(bench.now_ms))
    assert not leased(bench.state, bench.now_ms)
    bench.grant()
    assert leased(bench.state, bench.now_ms)


def test_an_acknowledgement_extends_a_lease_from_when_the_heartbeat_was_sent() -> None:
    bench = Bench()
    bench.grant()
    sent_ms = bench.now_ms + 30_000
    bench.now_ms += 59_000
    bench.tell(Beaten(sent_ms))
    assert bench.state.lease_until_ms == sent_ms + 60_000


def test_an_acknowledgement_never_revives_a_lease_that_has_passed() -> None:
    bench = Bench()
    bench.grant()
    bench.now_ms += 60_000
    bench.tell(Beaten(bench.now_ms))
    assert not leased(bench.state, bench.now_ms)


def test_a_grant_held_up_on_its_way_begins_a_lease_that_has_passed() -> None:
    bench = Bench()
    bench.tell(Beaten(bench.now_ms))
    bench.now_ms += 60_000
    bench.tell(Grant(cluster="c1", epoch=1, closed=()))
    assert bench.state.epoch == 1
    assert not leased(bench.state, bench.now_ms)


def test_a_repeated_grant_revives_nothing() -> None:
    bench = Bench()
    bench.grant(epoch=1)
    bench.now_ms += 60_000
    bench.grant(epoch=1)
    assert not leased(bench.state, bench.now_ms)


def test_a_grant_of_an_older_epoch_changes_nothing_even_after_a_restart() -> None:
    bench = Bench()
    bench.grant(epoch=5)
    bench.start()
    assert bench.grant(epoch=4).epoch == 0
    assert not leased(bench.state, bench.now_ms)
    assert bench.grant(epoch=6).epoch == 6


# --- keepers' leases ------------------------------------------------------------------------------


def test_a_keeper_is_told_at_most_what_is_left_of_the_agents_own_lease() -> None:
    bench = a_bench()
    bench.now_ms += 45_000
    (answer,) = bench.ask(epoch=1)
    assert isinstance(answer, LeaseAnswer)
    assert answer.remaining_ms == 15_000


def test_a_keeper_is_told_at_most_its_own_term() -> None:
    bench = Bench(Terms(keeper_lease_ms=20_000))
    bench.grant()
    bench.hello()
    (grant,) = bench.ask()
    assert isinstance(grant, KeeperGrant)
    assert grant.remaining_ms == 20_000


def test_without_a_lease_a_keeper_is_told_that_none_remains() -> None:
    bench = Bench()
    bench.hello()
    (answer,) = bench.ask()
    assert isinstance(answer, LeaseAnswer)
    assert answer.remaining_ms == 0


def test_a_grant_goes_on_to_every_keeper_as_answer_to_its_last_question() -> None:
    bench = Bench()
    bench.hello()
    bench.ask()
    bench.now_ms += 3_000
    bench.tell(Beaten(bench.now_ms))
    bench.tell(Grant(cluster="c1", epoch=1, closed=()))
    (grant,) = bench.sent()
    assert isinstance(grant, KeeperGrant)
    # Counted from the question: 3 s of the keeper's minute have gone.
    assert (grant.question, grant.remaining_ms) == (1, 60_000)
    assert bench.state.machines["m1"].lease_until_ms == bench.now_ms - 3_000 + 60_000


def test_a_keeper_whose_lease_has_passed_asks_with_epoch_0_and_is_granted_anew() -> None:
    bench = a_bench()
    assert [m.kind for m in bench.ask(epoch=1)] == ["lease_answer"]
    assert [m.kind for m in bench.ask(epoch=0)] == ["grant"]


def test_what_a_keeper_may_have_dropped_for_want_of_a_lease_is_started_again() -> None:
    bench = a_bench()
    bench.deliver(an_offer())
    grant, start = bench.ask(epoch=0)
    assert isinstance(grant, KeeperGrant)
    assert isinstance(start, StartAttempt)
    bench.started()
    assert [m.kind for m in bench.ask(epoch=0)] == ["grant"]


# --- silence --------------------------------------------------------------------------------------


def test_the_attempts_of_a_silent_machine_are_lost_after_its_deadline_and_not_before() -> None:
    bench = a_bench()
    running(bench)
    bench.hang_up()
    assert Reason.MACHINE_LOST not in _losses(bench, FENCE_MS - 1_000)
    assert _losses(bench, 2_000) == [Reason.MACHINE_LOST]


def test_a_stop_on_a_silent_machine_is_answered_after_its_deadline() -> None:
    bench = a_bench()
    running(bench)
    bench.hang_up()
    bench.deliver(a_stop())
    assert bench.endings() == []
    bench.effects = tuple(bench.wait(FENCE_MS + 1_000))
    (ending,) = bench.endings()
    assert (ending.kind, ending.stop_cause) == (EndKind.STOPPED, StopCause.PREEMPT)


def test_what_waits_on_loss_is_never_given_up() -> None:
    bench = a_bench()
    bench.deliver(an_offer(on_loss=OnLoss.WAIT))
    bench.hang_up()
    assert _losses(bench, 10 * FENCE_MS) == []
    assert bench.state.machines["m1"].fenced


def test_what_may_run_twice_is_given_up_when_its_machine_is_suspected() -> None:
    bench = a_bench()
    bench.deliver(an_offer(on_loss=OnLoss.REPLACE_AT_ONCE))
    bench.hang_up()
    assert _losses(bench, 29_000) == []
    assert _losses(bench, 2_000) == [Reason.MACHINE_LOST]


def test_a_keeper_that_comes_back_kills_what_was_given_up_and_frees_its_room() -> None:
    bench = a_bench()
    attempt = running(bench)
    bench.hang_up()
    bench.wait(FENCE_MS + 1_000)
    bench.grant(epoch=2)
    bench.hello(live=(attempt,))
    assert [type(m) for m in bench.sent()] == [StopAttempt]
    (grant,) = bench.ask()
    assert isinstance(grant, KeeperGrant)
    assert grant.closed == (attempt,)
    assert bench.word(an_offer("blue/t2", cpu_milli=4_000)) == "refused agent_no_room"
    bench.ended(attempt, Ending(kind=EndKind.STOPPED, stop_cause=StopCause.SUPERSEDED))
    assert bench.reports() == []
    assert bench.word(an_offer("blue/t3", cpu_milli=4_000)) == "admitted"


def test_a_keeper_that_was_only_held_up_is_told_what_was_given_up_meanwhile() -> None:
    bench = a_bench()
    attempt = running(bench)
    bench.wait(FENCE_MS + 1_000)
    bench.grant(epoch=2)
    assert bench.state.machines["m1"].fenced
    stop, grant = bench.ask(epoch=1)
    assert isinstance(stop, StopAttempt)
    assert isinstance(grant, KeeperGrant)
    assert (stop.attempt, grant.closed) == (attempt, (attempt,))


def test_a_success_that_was_given_up_as_lost_is_reported_when_its_keeper_comes_back() -> None:
    bench = a_bench()
    running(bench)
    bench.hang_up()
    bench.wait(FENCE_MS + 1_000)
    bench.hello()
    bench.ended()
    assert [e.success for e in bench.endings()] == [True]


def test_an_agent_that_was_away_itself_starts_the_wait_anew() -> None:
    bench = a_bench()
    running(bench)
    bench.hang_up()
    bench.wait(10_000)
    bench.now_ms += 10 * FENCE_MS
    bench.tell(Ticked())
    assert bench.endings() == []
    assert _losses(bench, FENCE_MS - 1_000) == []
    assert _losses(bench, 2_000) == [Reason.MACHINE_LOST]


def test_a_machine_known_only_from_the_journal_is_given_up_when_it_stays_silent() -> None:
    bench = a_bench()
    running(bench)
    bench.start()
    assert _losses(bench, FENCE_MS - 1_000) == []
    assert _losses(bench, 2_000) == [Reason.MACHINE_LOST]


# --- the brake ------------------------------------------------------------------------------------

FIVE = ("m1", "m2", "m3", "m4", "m5")


def test_the_brake_holds_while_too_many_machines_are_silent() -> None:
    bench = a_bench(machines=FIVE)
    running(bench, "blue/t1", machine="m1")
    running(bench, "blue/t2", machine="m2")
    assert _losses_of_silence(bench, ("m1", "m2"), 3 * FENCE_MS) == []
    assert bench.state.braked


def test_one_silent_machine_never_sets_the_brake() -> None:
    bench = a_bench(machines=("m1", "m2"))
    running(bench, machine="m1")
    assert _losses_of_silence(bench, ("m1",), FENCE_MS + 1_000) == [Reason.MACHINE_LOST]


def test_a_lifted_brake_starts_the_wait_of_those_still_silent_anew() -> None:
    bench = a_bench(machines=FIVE)
    running(bench, machine="m1")
    _losses_of_silence(bench, ("m1", "m2"), 3 * FENCE_MS)
    assert _losses_of_silence(bench, ("m1",), FENCE_MS - 2_000) == []
    assert not bench.state.braked
    assert _losses_of_silence(bench, ("m1",), 5_000) == [Reason.MACHINE_LOST]


def test_an_operator_lifts_the_brake_until_more_machines_are_silent() -> None:
    bench = a_bench(machines=FIVE)
    running(bench, machine="m1")
    _losses_of_silence(bench, ("m1", "m2"), 3 * FENCE_MS)
    assert bench.state.braked
    bench.tell(BrakeLifted())
    assert not bench.state.braked
    assert _losses_of_silence(bench, ("m1", "m2"), 10_000) == []
    assert not bench.state.braked
    assert _losses_of_silence(bench, ("m1", "m2", "m3"), 40_000) == []
    assert bench.state.braked  # One more is silent than the operator knew of.


def test_after_an_operators_lift_what_was_silent_is_given_up() -> None:
    bench = a_bench(machines=FIVE)
    running(bench, machine="m1")
    _losses_of_silence(bench, ("m1", "m2"), 3 * FENCE_MS)
    bench.tell(BrakeLifted())
    silent = ("m1", "m2")
    # The wait of each silent machine starts anew.
    assert _losses_of_silence(bench, silent, FENCE_MS - 2_000) == []
    assert _losses_of_silence(bench, silent, 4_000) == [Reason.MACHINE_LOST]


def test_a_lift_of_what_does_not_hold_changes_nothing() -> None:
    bench = a_bench(machines=FIVE)
    before = bench.state
    bench.tell(BrakeLifted())
    assert bench.state == before


def test_a_fenced_machine_counts_no_more_for_the_brake() -> None:
    bench = a_bench(machines=FIVE)
    running(bench, machine="m2")
    _losses_of_silence(bench, ("m1",), FENCE_MS + 2_000)
    assert bench.state.machines["m1"].fenced
    assert _losses_of_silence(bench, ("m1", "m2"), FENCE_MS + 2_000) == [Reason.MACHINE_LOST]


def _losses(bench: Bench, ms: int) -> list[Reason | None]:
    bench.effects = tuple(bench.wait(ms))
    return [ending.reason for ending in bench.endings()]


def _losses_of_silence(bench: Bench, silent: tuple[str, ...], ms: int) -> list[Reason | None]:
    """Everybody but these asks each second."""
    losses: list[Reason | None] = []
    until_ms = bench.now_ms + ms
    while bench.now_ms < until_ms:
        for name in bench.state.machines:
            if name not in silent:
                bench.ask(name, epoch=1)
        losses += _losses(bench, 1_000)
    return losses
