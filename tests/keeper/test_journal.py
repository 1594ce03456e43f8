"""What a restarted keeper remembers."""

import os
from pathlib import Path

import pytest

from domain.attempt import Ending, EndKind
from domain.protocol import AttemptEnded
from domain.reasons import Reason
from keeper import journal as journal_module
from keeper.census import Root
from keeper.journal import Journal
from keeper.roots import roots
from tests.keeper.attempt_builders import instant

AT = instant(0).at


def ended_of(attempt: str, code: int = 0) -> AttemptEnded:
    ending = Ending(kind=EndKind.EXITED, exit_code=code)
    return AttemptEnded(attempt=attempt, ending=ending, started_at=AT, at=AT)


def opened(path: Path, instance: str = "first") -> Journal:
    journal = Journal(path, instance)
    journal.begin(AT)
    return journal


def born_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_an_empty_journal_remembers_nothing(tmp_path):
    remembered = Journal(tmp_path / "journal", "first").begin(AT)
    assert (remembered.endings, remembered.tombstones) == ((), ())


def test_endings_are_remembered_until_they_are_forgotten_and_then_as_tombstones(tmp_path):
    journal = opened(tmp_path / "journal")
    for name in ("a", "b"):
        journal.intend(name)
        journal.ended(ended_of(name, 3))
    journal.forgotten(["a", "never"])
    remembered = Journal(tmp_path / "journal", "second").begin(AT)
    assert remembered.endings == (ended_of("b", 3),)
    assert remembered.tombstones == (ended_of("a", 3),)
    again = Journal(tmp_path / "journal", "third").begin(AT)
    assert again == remembered


def test_what_was_only_intended_died_with_its_keeper(tmp_path):
    opened(tmp_path / "journal").intend("a")
    remembered = Journal(tmp_path / "journal", "second").begin(AT)
    assert remembered.endings == ()
    [died] = remembered.tombstones
    assert (died.attempt, died.ending.kind) == ("a", EndKind.LOST)
    assert died.ending.reason is Reason.KEEPER_LOST


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_torn_last_line_costs_only_itself(tmp_path, cut):
    path = tmp_path / "journal"
    journal = opened(path)
    journal.ended(ended_of("a"))
    journal.ended(ended_of("b"))
    journal.close()
    path.write_bytes(path.read_bytes()[:-cut])
    journal = Journal(path, "second")
    assert journal.begin(AT).endings == (ended_of("a"),)
    journal.ended(ended_of("c"))
    assert Journal(path, "third").begin(AT).endings == (ended_of("a"), ended_of("c"))


def test_lines_of_no_meaning_are_passed_over(tmp_path):
    path = tmp_path / "journal"
    opened(path).ended(ended_of("a"))
    with path.open("ab") as file:
        file.write(b'\n[]\n{"k":"dance"}\n{"k":"ended","ended":{"attempt":1}}\n\xff\xfe')
    assert Journal(path, "second").begin(AT).endings == (ended_of("a"),)


def test_a_long_journal_is_compacted_and_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "LINES_BEFORE_COMPACTION", 50)
    path = tmp_path / "journal"
    journal = opened(path)
    journal.intend("live")
    journal.started("live", os.getpid(), born_of(os.getpid()), waits=False)
    longest = 0
    for number in range(500):
        name = f"t#{number}"
        journal.intend(name)
        journal.started(name, 1, 1, waits=False)
        journal.ended(ended_of(name))
        journal.forgotten([name])
        longest = max(longest, len(path.read_bytes().splitlines()))
        monkeypatch.setattr(journal_module, "TOMBSTONES_MAX", 20)
    assert longest < 400
    assert [root.attempt for root in roots(path)] == ["live"]
    remembered = Journal(path, "second").begin(AT)
    assert remembered.endings == ()
    assert [ended.attempt for ended in remembered.tombstones][-2:] == ["t#499", "live"]


def test_main_children_are_told_from_strangers_by_their_birth(tmp_path):
    path = tmp_path / "journal"
    journal = opened(path)
    me = os.getpid()
    for name, born in (("mine", born_of(me)), ("strange", born_of(me) + 1)):
        journal.intend(name)
        journal.started(name, me, born, waits=True)
    assert roots(path) == [Root(me, "mine", waits=True)]
    assert roots(path, "first") == [Root(me, "mine", waits=True)]
    assert roots(path, "another") == []
    journal.ended(ended_of("mine"))
    assert roots(path) == []


def test_pids_of_another_boot_name_nobody(tmp_path):
    path = tmp_path / "journal"
    journal = opened(path)
    journal.intend("a")
    journal.started("a", os.getpid(), born_of(os.getpid()), waits=False)
    assert len(roots(path)) == 1
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    path.write_text(path.read_text().replace(boot, "another"))
    assert roots(path) == []
