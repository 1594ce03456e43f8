"""What becomes of a stream: packing runs, and arrivals and endings on the virtual clock."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.priority import Band
from drystone.simulate.records import Amounts, Outcome, TaskRow
from drystone.simulate.run import Ran
from tests.simulate.worlds import a_demand, a_machine, placed_s, ran, waited_needlessly, where


def coming(name, at_s, lasts_s=None, **asks) -> TaskRow:
    lasts_ms = None if lasts_s is None else int(lasts_s * 1_000)
    return TaskRow(name, a_demand(**asks), int(at_s * 1_000), lasts_ms)


def outcomes(done: Ran) -> dict[str, Outcome]:
    return {line.task_id: line.outcome for line in done.result.placements}


# --- packing runs ---


def test_who_stands_first_in_the_file_is_served_first_whatever_its_band():
    stream = [
        TaskRow("low", a_demand(cpu=3_000, band=Band.LOW)),
        TaskRow("critical", a_demand(cpu=3_000, band=Band.CRITICAL)),
    ]
    done = ran([a_machine(cpu=4_000)], stream)
    assert where(done) == {"low": "m", "critical": ""}


def test_what_does_not_fit_is_skipped_and_holds_up_nobody():
    large, small = a_demand(cpu=3_000), a_demand(cpu=1_000)
    stream = [TaskRow("a", large), TaskRow("b", large), TaskRow("c", small), TaskRow("d", large)]
    done = ran([a_machine(cpu=4_000)], stream)
    assert where(done) == {"a": "m", "b": "", "c": "m", "d": ""}
    assert outcomes(done)["b"] is Outcome.UNPLACED
    assert done.result.placements[1].reason == "no_room_cpu"
    assert done.figures["outcomes"] == {
        "running": 2,
        "succeeded": 0,
        "preempted": 0,
        "unplaced": 2,
        "impossible": 0,
    }


def test_batches_are_rounds_and_change_nothing_that_is_alone_in_fitting():
    like = a_demand(cpu=1_000)
    stream = [TaskRow(f"t{n}", like) for n in range(5)]
    done = ran([a_machine(cpu=3_000)], stream, batch=2)
    assert list(where(done).values()) == ["m", "m", "m", "", ""]
    assert done.figures["rounds"] == 2, "the third batch asks only for what has failed before"


def test_what_no_machine_could_ever_hold_is_impossible_reservations_included():
    machine = replace(a_machine(cpu=4_000), reserved=Amounts(cpu_milli=2_000))
    done = ran([machine], [TaskRow("t", a_demand(cpu=3_000))])
    assert outcomes(done) == {"t": Outcome.IMPOSSIBLE}
    done = ran([a_machine(zone="z1")], [TaskRow("t", a_demand(zones=("z2",)))])
    assert done.result.placements[0].reason == "other_zone"


def test_a_service_is_spread_over_zones():
    machines = [a_machine(f"m{n}", zone=f"z{n % 3}") for n in range(6)]
    service = a_demand(cpu=100, memory=100, service="web")
    done = ran(machines, [TaskRow(f"t{n}", service) for n in range(9)])
    assert done.figures["check"]["spread_skew_max"] == 0


def test_no_machines_and_no_tasks_are_no_mistake():
    assert outcomes(ran([], [TaskRow("t", a_demand())])) == {"t": Outcome.UNPLACED}
    empty = ran([a_machine()], [])
    assert (empty.figures["placed"], empty.figures["placed_share"]) == (0, None)


def test_shares_of_a_device_never_span_two_and_models_are_kept_to():
    machines = [
        a_machine("t4", gpu=2, gpu_model="T4"),
        a_machine("p100", gpu=1, gpu_model="P100"),
    ]
    share = a_demand(cpu=10, memory=10, gpu_milli=600, gpu_models=("T4",))
    done = ran(machines, [TaskRow(f"t{n}", share) for n in range(3)])
    assert list(where(done).values()) == ["t4", "t4", ""]
    devices = {line.gpu_devices for line in done.result.placements[:2]}
    assert devices == {(0,), (1,)}
    assert done.figures["gpu_allocation_ratio"] == pytest.approx(0.4)
    whole = ran(machines, [TaskRow("w", a_demand(cpu=10, gpu=2))])
    assert whole.result.placements[0].gpu_devices == (0, 1)


# --- the virtual clock ---


def test_a_task_waits_for_room_and_has_it_the_moment_another_ends():
    stream = [
        coming("first", 0, 10, cpu=4_000),
        coming("second", 3, 5, cpu=4_000),
        coming("third", 4, None, cpu=4_000),
    ]
    done = ran([a_machine(cpu=4_000)], stream)
    assert placed_s(done) == {"first": 0, "second": 10, "third": 15}
    assert outcomes(done) == {
        "first": Outcome.SUCCEEDED,
        "second": Outcome.SUCCEEDED,
        "third": Outcome.RUNNING,
    }
    assert done.figures["waiting_s"] == {"p50": 7.0, "p90": 11.0, "p99": 11.0, "max": 11.0}
    # All of the machine from the first moment to the last, which is 15 s.
    assert done.figures["utilisation"]["mean"]["cpu_milli"] == 1.0


def test_the_more_important_goes_first_then_who_has_waited_longest():
    stream = [
        coming("runs", 0, 10, cpu=4_000),
        coming("normal", 1, 10, cpu=4_000),
        coming("later", 2, 10, cpu=4_000),
        coming("high", 3, 10, cpu=4_000, band=Band.HIGH),
    ]
    done = ran([a_machine(cpu=4_000)], stream)
    assert placed_s(done) == {"runs": 0, "high": 10, "normal": 20, "later": 30}


def test_a_small_task_passes_a_large_one_that_waits():
    stream = [
        coming("runs", 0, 10, cpu=3_000),
        coming("large", 1, 10, cpu=4_000),
        coming("small", 2, 3, cpu=1_000),
    ]
    done = ran([a_machine(cpu=4_000)], stream)
    assert placed_s(done) == {"runs": 0, "large": 10, "small": 2}


def test_the_order_of_the_file_is_not_the_order_of_time():
    stream = [coming("late", 5, 1, cpu=4_000), coming("early", 0, 10, cpu=4_000)]
    assert placed_s(ran([a_machine(cpu=4_000)], stream)) == {"late": 10, "early": 0}


def test_a_task_of_no_length_gives_its_room_back_in_the_same_moment():
    stream = [coming(f"t{n}", 5, 0, cpu=4_000) for n in range(3)]
    done = ran([a_machine(cpu=4_000)], stream)
    assert placed_s(done) == {"t0": 5, "t1": 5, "t2": 5}


def test_what_is_impossible_waits_for_nothing():
    stream = [
        coming("never", 0, 5, cpu=9_000),
        coming("never either", 0, 5, cpu=9_000),
        coming("fits", 0, 5),
    ]
    done = ran([a_machine(cpu=4_000)], stream)
    assert outcomes(done)["never"] is outcomes(done)["never either"] is Outcome.IMPOSSIBLE
    assert outcomes(done)["fits"] is Outcome.SUCCEEDED


def test_what_still_waits_at_the_end_is_unplaced_with_its_reason():
    stream = [coming("stays", 0, None, cpu=4_000), coming("waits", 1, 5, cpu=4_000)]
    done = ran([a_machine(cpu=4_000)], stream)
    assert outcomes(done) == {"stays": Outcome.RUNNING, "waits": Outcome.UNPLACED}
    assert done.result.placements[1].reason == "no_room_cpu"


def test_a_cap_per_machine_is_lifted_when_one_of_the_service_ends():
    capped = a_demand(cpu=10, service="web", max_per_machine=1)
    stream = [TaskRow("a", capped, 0, 7_000), TaskRow("b", capped, 0, 7_000)]
    assert placed_s(ran([a_machine()], stream)) == {"a": 0, "b": 7}


def test_a_queue_longer_than_a_round_is_served_within_the_moment():
    stream = [coming("runs", 0, 10, cpu=4_000)]
    stream += [coming(f"t{n}", 1, 1, cpu=1_000) for n in range(4)]
    done = ran([a_machine(cpu=4_000)], stream, batch=1)
    assert set(placed_s(done).values()) == {0, 10}


# --- properties ---

KINDS = (
    {"cpu": 1_000, "memory": 1_024},
    {"cpu": 3_000, "memory": 512},
    {"cpu": 500, "memory": 4_096, "band": Band.HIGH},
    {"cpu": 1_000, "memory": 1_024, "zones": ("z1",)},
    {"cpu": 100, "memory": 100, "gpu": 1},
    {"cpu": 100, "memory": 100, "gpu": 2},
    {"cpu": 100, "memory": 100, "gpu_milli": 400},
    {"cpu": 9_000, "memory": 1},
)


@st.composite
def worlds(draw, *, timed):
    machines = [
        a_machine(
            f"m{n}",
            cpu=draw(st.sampled_from((2_000, 4_000, 8_000))),
            gpu=draw(st.integers(0, 3)),
            zone=draw(st.sampled_from(("z1", "z2"))),
        )
        for n in range(draw(st.integers(1, 4)))
    ]
    kinds = [a_demand(**kind) for kind in KINDS]
    stream = []
    for n in range(draw(st.integers(1, 25))):
        times = (
            (
                draw(st.integers(0, 20)) * 500,
                draw(st.none() | st.integers(0, 12).map((500).__mul__)),
            )
            if timed
            else (None, None)
        )
        stream.append(TaskRow(f"t{n}", draw(st.sampled_from(kinds)), *times))
    return machines, stream, draw(st.sampled_from((1, 3, 10_000)))


@settings(max_examples=40)
@given(worlds(timed=False))
def test_every_packing_run_is_lawful_and_leaves_out_nothing_that_fits(world):
    machines, stream, batch = world
    ran(machines, stream, batch=batch)


@settings(max_examples=40)
@given(worlds(timed=True))
def test_every_run_on_the_clock_is_lawful_and_nobody_waits_while_there_is_room(world):
    machines, stream, batch = world
    done = ran(machines, stream, batch=batch)
    assert waited_needlessly(machines, stream, done.result.placements) == []


@settings(max_examples=40)
@given(worlds(timed=True), st.integers(0, 3))
def test_equal_inputs_and_seed_give_equal_placements(world, seed):
    machines, stream, batch = world
    first, second = (ran(machines, stream, batch=batch, seed=seed) for _ in range(2))
    assert first.result.placements == second.result.placements
    assert first.figures == second.figures
