"""Which processes belong together, read from the real /proc."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator

import pytest

from keeper.census import Root, freeze_passes, kill_pass, processes, read_mark, read_process, trees
from tests.keeper.fake_agent import alive, until


@pytest.fixture
def child() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Children that end with the test."""
    children: list[subprocess.Popen[bytes]] = []
    yield children
    for one in children:
        one.kill()
        one.wait()


def marked(mark: str, *command: str) -> subprocess.Popen[bytes]:
    environment = {"PATH": os.environ["PATH"], "FIRST": "x" * 100_000, "DRYSTONE_MARK": mark}
    return subprocess.Popen(command, env=environment, start_new_session=True)


def bare(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["env", "-i", *command], start_new_session=True)


def test_a_process_is_read_whatever_its_name_is(tmp_path, child):
    odd = tmp_path / "a) Z 1 (b"
    shutil.copy(shutil.which("sleep") or "", odd)
    child.append(subprocess.Popen([odd, "1000"], start_new_session=True))
    process = read_process(child[0].pid)
    assert process is not None
    assert (process.parent, process.session) == (os.getpid(), child[0].pid)
    assert not process.stands_still


def test_a_process_that_has_ended_is_not_there(child):
    child.append(subprocess.Popen(["true"]))
    os.waitid(os.P_PID, child[0].pid, os.WEXITED | os.WNOWAIT)
    assert read_process(child[0].pid) is None, "a zombie has ended"
    child[0].wait()
    assert read_process(child[0].pid) is None
    assert read_mark(child[0].pid) is None


def test_a_mark_is_found_wherever_it_stands_in_the_environment(child):
    child.append(marked("k.i:blue/a#1:wait", "sleep", "1000"))
    child.append(subprocess.Popen(["sleep", "1000"], env={"NOT_DRYSTONE_MARK": "k.i:x"}))
    assert read_mark(child[0].pid) == "k.i:blue/a#1:wait"
    assert read_mark(child[1].pid) is None
    owners = trees(processes(), "k.i:")
    assert owners == {child[0].pid: Root(0, "blue/a#1", waits=True)}
    assert trees(processes(), "k.") == owners, "every instance of a keeper"
    assert trees(processes(), "k.j:") == {}


async def test_children_without_a_mark_belong_by_session_and_by_parents(child, tmp_path):
    script = f"sleep 1000 & setsid sleep 1000 & echo > {tmp_path}/ready; wait"
    child.append(bare("sh", "-c", script))
    await until((tmp_path / "ready").exists, "ready")
    root = Root(child[0].pid, "blue/a#1")
    await until(lambda: len(trees(processes(), "nothing", [root])) == 3, "three processes")
    assert set(trees(processes(), "nothing", [root]).values()) == {root}
    while kill_pass("nothing", [root]):
        pass
    assert not alive(child[0].pid)


async def test_a_freeze_stops_what_does_not_wait_and_tells_what_it_stopped(child):
    child.append(marked("k.i:a", "sleep", "1000"))
    child.append(marked("k.i:b:wait", "sleep", "1000"))
    child.append(marked("k.i:c", "sleep", "1000"))
    child[2].send_signal(signal.SIGSTOP)
    await until(lambda: _still(child[2].pid), "one stands still already")
    assert freeze_passes("k.i:", list, lambda: True) == {child[0].pid}
    assert [_still(one.pid) for one in child] == [True, False, True]
    child[0].send_signal(signal.SIGCONT)
    await until(lambda: not _still(child[0].pid), "it goes on")
    assert freeze_passes("k.i:", list, lambda: False) == set(), "a word of the keeper ends it"


def _still(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and process.stands_still


def test_every_process_of_this_machine_can_be_read():
    there = processes()
    assert os.getpid() in there
    assert there[os.getpid()].parent == os.getppid()
