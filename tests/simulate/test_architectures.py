"""Several schedulers on one fleet: whatever they do, no machine is given away twice."""

import pytest

from drystone.simulate.accounts import asked
from drystone.simulate.architectures import Architecture, Contest, Costs, compare
from drystone.simulate.records import TaskRow
from tests.simulate.worlds import a_demand, a_machine

COSTS = Costs(round_us=1_000, decide_us=10, commit_us=50, exchange_us=40)
FLEET = [a_machine(f"m{n}", cpu=8_000, memory=16_384) for n in range(12)]
KINDS = [a_demand(cpu=1_000, memory=1_024), a_demand(cpu=3_000, memory=2_048)]
STREAM = [TaskRow(f"t{n}", KINDS[n % 2]) for n in range(60)]
"""Half of them asks for 30 of 96 cores, the other for 90: a good part finds no room."""


@pytest.mark.parametrize(
    "form",
    [
        Architecture("single", 1),
        Architecture("scoring", 1, scorers=3),
        Architecture("offers", 3, offered=True),
        Architecture("shared", 3),
        Architecture("sliced", 3, sliced=True),
    ],
    ids=lambda form: form.name,
)
@pytest.mark.parametrize("apart_us", [0.0, 20_000.0])
def test_every_claim_is_true_and_nothing_is_left_out_that_fits(form, apart_us):
    times_us = [n * apart_us for n in range(len(STREAM))]
    contest = Contest(FLEET, STREAM, form, COSTS, times_us)
    found = contest.run()
    placed = dict(contest.log)
    assert len(placed) == len(contest.log) == found["placed"]
    for number, machine in enumerate(FLEET):
        for column in (0, 1):
            used = sum(
                STREAM[task].demand.asks[column] for task, at in placed.items() if at == number
            )
            assert used <= machine.capacity[column]
    left = {id(row.demand): row.demand for n, row in enumerate(STREAM) if n not in placed}
    assert left, "the fleet is too small for all"
    for demand in left.values():
        for free in contest.truth.free:
            assert not all(a <= b for a, b in zip(asked(demand), free, strict=True) if a)
    assert min(contest.waits_us) > 0


def test_only_those_who_share_machines_collide():
    found = compare(FLEET, STREAM, schedulers=3, rate=500, costs=COSTS, seed=1)
    collide = {name: one["backlog"]["conflict_rate"] > 0 for name, one in found.items()}
    assert not collide["single scheduler"]
    assert not collide["parallel scoring"]
    assert not collide["offers"]
    assert collide["shared state"], "the same view, the same favourite machines"


def test_equal_inputs_give_equal_figures():
    first, second = (
        compare(FLEET, STREAM, schedulers=2, rate=500, costs=COSTS, seed=1) for _ in range(2)
    )
    assert first == second
