"""The folder of a keeper: its mark, its lock, its sweeping; and the addresses of agents."""

import os
from pathlib import Path

import pytest

from keeper import premises as premises_module
from keeper.census import mark_of, trees
from keeper.link import Address, read_address
from keeper.premises import FolderError, occupy, sweep


def test_the_mark_of_a_folder_stays(tmp_path):
    first = occupy(tmp_path / "k", "one")
    os.close(first.lock)
    second = occupy(tmp_path / "k", "two")
    os.close(second.lock)
    assert first.mark == second.mark == "one"


def test_a_folder_has_one_keeper(tmp_path):
    first = occupy(tmp_path / "k", "one")
    with pytest.raises(FolderError, match=f"process {os.getpid()}"):
        occupy(tmp_path / "k", "one")
    os.close(first.lock)


def made(folder: Path, name: str, age_s: float, now_s: float = 1_000_000.0) -> Path:
    path = folder / "blue" / name
    (path / "work").mkdir(parents=True)
    os.utime(path, (now_s - age_s, now_s - age_s))
    return path


def test_folders_that_are_old_and_held_by_nobody_are_swept(tmp_path):
    old, held, young = (
        made(tmp_path, "a#1", 99),
        made(tmp_path, "b#1", 99),
        made(tmp_path, "c#1", 9),
    )
    assert sweep(tmp_path, {"blue/b#1"}, older_than_s=50, now_s=1_000_000.0) == 1
    assert [path.exists() for path in (old, held, young)] == [False, True, True]


def test_folders_that_are_too_many_are_swept_oldest_first(tmp_path, monkeypatch):
    monkeypatch.setattr(premises_module, "FOLDERS_KEPT_MAX", 2)
    folders = [made(tmp_path, f"t#{number}", age_s=number) for number in range(1, 6)]
    sweep(tmp_path, set(), older_than_s=1e9, now_s=1_000_000.0)
    assert [path.exists() for path in folders] == [True, True, False, False, False]


def test_a_mark_tells_keeper_attempt_and_whether_it_waits():
    assert mark_of("k.i", "blue/a#1", waits=False) == "k.i:blue/a#1"
    assert mark_of("k.i", "blue/a#1", waits=True) == "k.i:blue/a#1:wait"
    assert trees({}, "k.i:") == {}


def test_addresses_of_agents():
    assert read_address("unix:/run/agent.sock") == Address(
        "/run/agent.sock", "ws://agent/v1/keeper"
    )
    assert read_address("http://a:8090/") == Address(None, "ws://a:8090/v1/keeper")
    assert read_address("https://a/under") == Address(None, "wss://a/under/v1/keeper")
    for wrong in ("a:8090", "ws://a", "http://"):
        with pytest.raises(ValueError, match="no agent address"):
            read_address(wrong)
