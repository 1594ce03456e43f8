"""The benchmark of placement measures rounds that place what they say."""

from drystone.bench.placement import run


def test_the_benchmark_places_and_reports() -> None:
    found = run(machines=64, tasks=40, shapes=5, seed=1)
    assert 0 < found["placed"] <= 40
    assert found["placements_per_s"] > 0
    assert found["one_exact_ms"] > 0
