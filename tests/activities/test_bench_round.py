"""The benchmark of whole rounds: what it prints, and that it finds what must never be."""

import pytest
from sqlalchemy import text

from drystone.bench.generated import GeneratedLedger, ledger_database
from drystone.bench.round import check, run
from store.session import transaction


def test_it_places_what_waits_and_prints_the_agreed_keys() -> None:
    said: list[str] = []
    found = run(machines=60, tasks=40, partitions=2, database="sqlite://", say=said.append)
    assert set(found) == {"placements_per_s", "conflict_rate", "split_ms"}
    assert set(found["split_ms"]) == {"load", "solve", "commit", "verdicts"}
    assert found["placements_per_s"] > 0
    assert 0 <= found["conflict_rate"] < 1


def test_a_machine_over_its_capacity_is_found_at_the_end() -> None:
    with ledger_database("sqlite://") as url:
        ledger = GeneratedLedger(url, partitions=1, seed=1)
        ledger.add_machines(2)
        check(ledger.engine)
        with transaction(ledger.engine) as connection:
            connection.execute(text("UPDATE machine SET used_gpu = cap_gpu + 1"))
        with pytest.raises(AssertionError, match="2 machines hold more than they have"):
            check(ledger.engine)
        ledger.engine.dispose()
