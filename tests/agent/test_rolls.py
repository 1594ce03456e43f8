"""The list behind a digest: what the agent says it holds on a machine."""

from agent.admission import bulletin
from agent.rolls import roll_answer
from domain.audit import RollCall
from domain.ids import attempt_hash
from tests.agent.bench import Bench, a_bench, a_stop, running


def _rolls(bench: Bench, *machines: str) -> dict[str, tuple[str, ...]]:
    answer = roll_answer(bench.state, RollCall(cluster="c1", machines=machines))
    assert (answer.instance, answer.epoch) == (bench.state.instance, bench.state.epoch)
    return {roll.machine: roll.attempts for roll in answer.rolls}


def test_a_list_holds_what_its_digest_counts_and_only_machines_that_are_known() -> None:
    bench = a_bench(machines=("m1", "m2"))
    running(bench, "blue/t1", machine="m1")
    running(bench, "blue/t2", machine="m1")
    bench.deliver(a_stop("blue/t2"))
    found = _rolls(bench, "m1", "m2", "m9")
    assert found == {"m1": ("blue/t1#1", "blue/t2#1"), "m2": ()}
    digest = bulletin(bench.state, bench.now_ms).running[0]
    xor = attempt_hash("blue/t1#1") ^ attempt_hash("blue/t2#1")
    assert (digest.machine, digest.count, digest.xor) == ("m1", 2, xor)


def test_what_was_given_up_is_not_listed() -> None:
    bench = a_bench(machines=("m1",))
    running(bench, machine="m1")
    bench.wait(bench.state.terms.fence_ms + 2_000)
    assert bench.state.machines["m1"].fenced
    assert _rolls(bench, "m1") == {"m1": ()}


def test_a_list_too_long_for_one_answer_is_left_for_the_next() -> None:
    bench = a_bench(machines=("m1", "m2"))
    running(bench, machine="m1")
    call = RollCall(cluster="c1", machines=("m1", "m2"))
    assert roll_answer(bench.state, call, room=0).rolls == ()
