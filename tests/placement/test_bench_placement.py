"""The benchmarks of placement measure batches that place what they say."""

from drystone.bench import fill, placement
from placement.assign import HAND


def test_the_benchmark_places_and_reports() -> None:
    found = placement.run(machines=640, tasks=40, shapes=5, seed=1, stored=50)
    assert 0 < found["placed"] <= 40
    assert all(found[key] > 0 for key in found)
    assert found["candidates_per_task"] <= HAND * 2


def test_a_fleet_is_filled_until_hardly_a_task_fits() -> None:
    found = fill.run(machines=100, batch_tasks=500)
    assert found["placements"] > 0
    assert found["utilisation"]["cpu_milli"] > 0.7
