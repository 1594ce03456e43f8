"""The journal on a real disk: what is read again after a kill at any byte."""

from pathlib import Path

import pytest

from agent.admission import Terms, restored, snapshot
from agent.entries import Admitted, Buried, EndSeen, Entry, MachineSeen
from agent.journal import Journal, JournalDamagedError
from tests.agent.bench import EXITED, KEY, WALL, a_machine, a_spec

ENTRIES: list[Entry] = [
    MachineSeen(report=a_machine()),
    Admitted(key=KEY, number=1, machine="m1", instance="k1", spec=a_spec()),
    EndSeen(key=KEY, number=1, machine="m1", ending=EXITED, at=WALL),
]


def test_what_was_appended_is_read_again(tmp_path: Path) -> None:
    journal = _opened(tmp_path)
    journal.append(ENTRIES)
    # No close: a killed process does not close either.
    assert Journal(tmp_path).read() == ENTRIES


@pytest.mark.parametrize("lost_bytes", [1, 2, 50])
def test_a_torn_last_line_is_dropped_and_the_rest_kept(tmp_path: Path, lost_bytes: int) -> None:
    journal = _opened(tmp_path)
    journal.append(ENTRIES)
    journal.close()
    tail = _tail(tmp_path)
    tail.write_bytes(tail.read_bytes()[:-lost_bytes])
    again = Journal(tmp_path)
    assert again.read() == ENTRIES[:2]
    again.append([Buried(attempt="blue/x#1")])
    assert Journal(tmp_path).read() == [*ENTRIES[:2], Buried(attempt="blue/x#1")]


def test_damage_before_the_last_line_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    journal = _opened(tmp_path)
    journal.append(ENTRIES)
    journal.close()
    tail = _tail(tmp_path)
    lines = tail.read_bytes().splitlines(keepends=True)
    tail.write_bytes(b"".join([lines[0], b"{nonsense\n", lines[2]]))
    with pytest.raises(JournalDamagedError, match="line 2"):
        Journal(tmp_path).read()


def test_only_what_nobody_else_knows_waits_for_the_disk(tmp_path: Path) -> None:
    journal = _opened(tmp_path)
    assert not journal.append([])
    assert not journal.append([ENTRIES[0], ENTRIES[2]])
    assert journal.append([ENTRIES[1]])


def test_a_compacted_journal_says_the_same_in_fewer_lines(tmp_path: Path) -> None:
    journal = _opened(tmp_path)
    journal.append(ENTRIES * 50)
    state, _ = restored(
        Journal(tmp_path).read(), terms=Terms(), cluster="c", instance="a", now_ms=0
    )
    generation = journal.turn()
    journal.append([Buried(attempt="blue/after#1")])
    journal.compact(generation, snapshot(state))
    assert Journal(tmp_path).read() == [*snapshot(state), Buried(attempt="blue/after#1")]
    assert len(Journal(tmp_path).read()) < 10


def test_a_compaction_that_was_killed_half_way_changes_nothing(tmp_path: Path) -> None:
    journal = _opened(tmp_path)
    journal.append(ENTRIES)
    generation = journal.turn()
    journal.append([Buried(attempt="blue/after#1")])
    (tmp_path / f"snapshot-{generation:08}.new").write_text('{"kind": "machine", "rep')
    assert Journal(tmp_path).read() == [*ENTRIES, Buried(attempt="blue/after#1")]


def test_tails_that_a_killed_compaction_did_not_remove_are_not_read_twice(tmp_path: Path) -> None:
    journal = _opened(tmp_path)
    journal.append(ENTRIES)
    old = _tail(tmp_path).read_bytes()
    journal.compact(journal.turn(), ENTRIES[:1])
    (tmp_path / "tail-00000001.jsonl").write_bytes(old)
    assert Journal(tmp_path).read() == ENTRIES[:1]


def _opened(folder: Path) -> Journal:
    journal = Journal(folder)
    assert journal.read() == []
    return journal


def _tail(folder: Path) -> Path:
    (tail,) = folder.glob("tail-*.jsonl")
    return tail
