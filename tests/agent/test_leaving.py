"""Keepers that are stopped, killed and started again: who is leaving, and who only looks like it.

In each order of events the task's next number must find the machine again.
"""

from agent.admission import Connected, Disconnected, Said, bulletin
from domain.attempt import Ending, EndKind, StopCause
from domain.protocol import AttemptEnded, KeeperHello, LeaseQuestion, StartAttempt
from domain.reasons import Reason
from tests.agent.bench import KEY, WALL, Bench, a_bench, a_machine, an_offer, running

ATTEMPT = f"{KEY}#1"
SHUT_DOWN = Ending(kind=EndKind.STOPPED, reason=Reason.SHUT_DOWN, stop_cause=StopCause.SHUT_DOWN)


# --- another keeper has come: it is not leaving ---------------------------------------------------


def test_agent_and_keeper_stopped_at_once_leave_a_machine_that_is_used_again() -> None:
    """The supervisor of both was killed: the keeper's endings are told by its successor."""
    bench = a_bench()
    running(bench)
    bench.start()
    bench.grant(epoch=2)
    _another_keeper_tells_what_the_first_has_kept(bench)


def test_a_keeper_stopped_while_its_agent_is_away_leaves_a_machine_that_is_used_again() -> None:
    bench = a_bench()
    running(bench)
    bench.hang_up()
    _another_keeper_tells_what_the_first_has_kept(bench)


def test_an_ending_told_twice_because_nobody_forgot_it_makes_no_machine_leave() -> None:
    bench = a_bench()
    running(bench)
    bench.ended(ending=SHUT_DOWN)
    bench.take()
    bench.hang_up()
    bench.hello(instance="k2")
    bench.ended(ending=SHUT_DOWN)
    assert bench.reports() == []
    _is_used(bench)


def test_an_agent_without_a_journal_takes_kept_endings_for_what_they_are() -> None:
    bench = a_bench()
    running(bench)
    bench.journal.clear()
    bench.start()
    bench.grant(epoch=2)
    _another_keeper_tells_what_the_first_has_kept(bench)


def test_an_ending_of_the_last_keeper_on_its_old_connection_makes_the_new_one_not_leave() -> None:
    bench = a_bench()
    running(bench)
    old = bench.connections
    bench.hello(instance="k2")
    ended = AttemptEnded(attempt=ATTEMPT, ending=SHUT_DOWN, started_at=WALL, at=WALL)
    bench.tell(Said("m1", old, ended))
    bench.tell(Disconnected("m1", old))
    _is_used(bench)


def test_a_killed_keeper_is_followed_by_one_that_is_used() -> None:
    bench = a_bench()
    running(bench)
    bench.hang_up()
    bench.hello(instance="k2")
    bench.ask()
    assert [ending.reason for ending in bench.endings()] == [Reason.KEEPER_LOST]
    _is_used(bench)


def test_an_agent_restarted_alone_finds_its_keeper_staying() -> None:
    bench = a_bench()
    running(bench)
    bench.start()
    bench.grant(epoch=2)
    bench.hello(live=(ATTEMPT,))
    bench.ask()
    assert bench.endings() == []
    assert bench.word(an_offer("blue/t2")) == "admitted"


# --- the same keeper: it is -----------------------------------------------------------------------


def test_a_goodbye_comes_before_the_first_ending() -> None:
    bench = a_bench()
    running(bench)
    _goodbye(bench)
    assert not _told_reachable(bench)
    assert bench.word(an_offer("blue/t2")) == "none"
    bench.ended(ending=SHUT_DOWN)
    _waits_for_another_keeper(bench)


def test_a_keeper_of_the_version_before_says_it_with_its_first_ending() -> None:
    bench = a_bench()
    running(bench)
    bench.ended(ending=SHUT_DOWN)
    assert not _told_reachable(bench)
    _waits_for_another_keeper(bench)


def test_a_link_broken_during_the_shutdown_does_not_make_a_keeper_stay() -> None:
    bench = a_bench()
    running(bench)
    running(bench, "blue/t2")
    bench.ended(ending=SHUT_DOWN)
    bench.hang_up()
    bench.hello(live=("blue/t2#1",))
    _waits_for_another_keeper(bench)


def test_an_agent_restarted_during_the_shutdown_hears_of_it_in_the_hello() -> None:
    bench = a_bench()
    running(bench)
    bench.start()
    bench.grant(epoch=2)
    hello = KeeperHello(machine=a_machine(), epoch=0, live=(ATTEMPT,), leaving=True)
    bench.connections += 1
    bench.tell(Connected(hello, bench.connections))
    bench.ask()
    assert bench.word(an_offer("blue/t2")) == "none"
    bench.ended(ending=SHUT_DOWN)
    _waits_for_another_keeper(bench)


# --- the parts of these stories -------------------------------------------------------------------


def _another_keeper_tells_what_the_first_has_kept(bench: Bench) -> None:
    bench.hello(instance="k2")
    bench.ended(ending=SHUT_DOWN)
    assert [ending.stop_cause for ending in bench.endings()] == [StopCause.SHUT_DOWN]
    _is_used(bench)


def _waits_for_another_keeper(bench: Bench) -> None:
    bench.ask()
    assert bench.word(an_offer(number=2)) == "none"
    bench.hang_up()
    bench.hello(instance="k2")
    _is_used(bench)


def _is_used(bench: Bench) -> None:
    bench.ask()
    assert _told_reachable(bench)
    assert bench.word(an_offer(number=2)) == "admitted"
    assert [m.attempt for m in bench.sent() if isinstance(m, StartAttempt)] == [f"{KEY}#2"]


def _told_reachable(bench: Bench) -> bool:
    (state,) = bulletin(bench.state, bench.now_ms).states
    return state.reachable


def _goodbye(bench: Bench) -> None:
    bench.questions += 1
    bench.say(LeaseQuestion(question=bench.questions, epoch=1, leaving=True))
