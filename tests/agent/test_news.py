"""What heartbeats tell the scheduler, and that a snapshot tells what the journal told."""

from collections.abc import Sequence

from agent.admission import Beaten, Effects, State, bulletin, restored, snapshot
from agent.entries import Admitted, EndSeen, Entry
from domain.ids import attempt_hash
from tests.agent.bench import Bench, a_bench, a_stop, an_offer, running

# --- what the heartbeat says ----------------------------------------------------------------------


def test_news_are_told_until_their_heartbeat_is_acknowledged() -> None:
    bench = a_bench()
    first = bulletin(bench.state, bench.now_ms)
    assert [(s.machine, s.reachable) for s in first.states] == [("m1", True)]
    bench.hang_up()
    bench.tell(Beaten(bench.now_ms, first.told))
    second = bulletin(bench.state, bench.now_ms)
    assert [(s.machine, s.reachable) for s in second.states] == [("m1", False)]
    bench.tell(Beaten(bench.now_ms, second.told))
    assert bulletin(bench.state, bench.now_ms).machines == ()


def test_the_digest_counts_what_the_scheduler_should_hold_claims_for() -> None:
    bench = a_bench()
    running(bench, "blue/t1")
    running(bench, "blue/t2")
    (digest,) = bulletin(bench.state, bench.now_ms).running
    assert digest.count == 2
    assert digest.xor == attempt_hash("blue/t1#1") ^ attempt_hash("blue/t2#1")


def test_digests_take_turns() -> None:
    bench = a_bench(machines=("m1", "m2", "m3"))
    assert [d.machine for d in bulletin(bench.state, bench.now_ms, "m1").running] == ["m2", "m3"]


def test_a_new_epoch_tells_of_all_machines_again() -> None:
    bench = a_bench(machines=("m1", "m2"))
    bench.tell(Beaten(bench.now_ms, bulletin(bench.state, bench.now_ms).told))
    bench.grant(epoch=2)
    assert [m.name for m in bulletin(bench.state, bench.now_ms).machines] == ["m1", "m2"]


# --- the journal ----------------------------------------------------------------------------------


def test_a_snapshot_says_the_same_as_the_journal_it_replaces() -> None:
    bench = a_bench(machines=("m1", "m2"))
    running(bench, "blue/t1")
    running(bench, "blue/t2")
    bench.deliver(a_stop("blue/t2"), a_stop("blue/t3"), an_offer("blue/t4", machine="m2"))
    bench.ended("blue/t1#1")
    bench.take()
    running(bench, "blue/t5", machine="m1")
    bench.hang_up("m1")
    for _ in range(4):
        bench.wait(20_000)
        bench.ask("m2")
    entries = list(snapshot(bench.state))
    one, reports = _again(bench, bench.journal)
    other, same_reports = _again(bench, entries)
    assert set(reports) == set(same_reports)
    assert list(snapshot(one)) == list(snapshot(other)) == entries
    assert any(isinstance(e, Admitted) for e in entries)
    assert any(isinstance(e, EndSeen) and e.remains for e in entries)


def _again(bench: Bench, entries: Sequence[Entry]) -> tuple[State, Effects]:
    return restored(entries, terms=bench.terms, cluster="c1", instance="a9", now_ms=5)
