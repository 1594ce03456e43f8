"""`drystone audit`, `brake` and `machines confirm-lost` against a running Drystone."""

import json
import sqlite3

from tests.cli.conftest import Up


def test_audit_says_whether_all_agrees(up: Up) -> None:
    done = up.call("audit")
    assert done.returncode == 0, done
    assert "no difference stands" in done.stdout
    assert "0 (for their lists; nobody is, where agents count as many" in done.stdout
    told = json.loads(up.call("audit", "--now", "--json").stdout)
    assert told["run"] >= 2
    assert told["ended_at"] is not None
    assert told["standing"] == []


def test_audit_exits_with_1_while_a_difference_stands(up: Up) -> None:
    """No look is taken meanwhile: the next audit would find that it is none."""
    row = ("fault", "subject", "standing", "expected", "found", "run", "first_seen", "last_seen")
    values = ("runs_without_claim", "blue/ghost#1", "standing", "a claim", "runs", 10**9, 1, 1)
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    with sqlite3.connect(up.data / "ledger.db") as ledger:
        ledger.execute(f"INSERT INTO difference ({names}) VALUES ({marks})", values)
    try:
        done = up.call("audit")
        assert done.returncode == 1
        assert "blue/ghost#1" in done.stdout
    finally:
        with sqlite3.connect(up.data / "ledger.db") as ledger:
            ledger.execute("DELETE FROM difference")


def test_the_brake_is_told_and_lifting_what_does_not_hold_is_no_error(up: Up) -> None:
    done = up.call("brake", "--lift", "--by", "ann")
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[:2] == ["not held", "clusters silent: 0 of 1"]
    assert up.call("brake", "--cluster", "local").returncode == 2


def test_a_machine_that_answers_is_not_lost(up: Up) -> None:
    name = json.loads(up.call("machines", "list", "--json").stdout)[0]["name"]
    done = up.call("machines", "confirm-lost", name, "--yes", "--by", "ann")
    assert done.returncode == 65, done
    assert "answers" in done.stderr
