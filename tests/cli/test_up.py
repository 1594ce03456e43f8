"""`drystone up`: what it refuses and restarts, and what a stop and a start leave of tasks."""

import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from drystone.stack.folder import read_state
from tests.cli.conftest import Up, call, make_up
from tests.support.fleet import wait_until


def test_a_port_in_use_is_named_with_its_option(tmp_path: Path) -> None:
    up = make_up(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", up.ui_port))
        taken.listen()
        done = up.call("up", *up.options)
    assert done.returncode == 1
    assert str(up.ui_port) in done.stderr
    assert "--ui-port" in done.stderr


@pytest.mark.parametrize("name", ["missing/folder", "file"])
def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    done = call(["up", "--data", str(tmp_path / name)], {})
    assert done.returncode == 1
    assert str(tmp_path / name) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    done = call(["up", "--data", str(tmp_path / "locked")], {})
    assert done.returncode == 1
    assert "cannot be written" in done.stderr


def test_down_and_status_without_an_up_say_so(tmp_path: Path) -> None:
    for command in ("down", "status"):
        done = call([command, "--data", str(tmp_path)], {})
        assert done.returncode == 1
        assert "nothing is up" in done.stderr


def test_running_tasks_go_on_uncharged_at_the_next_up(tmp_path: Path) -> None:
    up = make_up(tmp_path)
    up.data.mkdir()
    process = up.start()
    # In the first attempt it runs until it is stopped; no failure is allowed to it.
    script = '[ "$DRYSTONE_ATTEMPT" -gt 1 ] || sleep 600'
    task = {"id": "a", "command": ["sh", "-c", script], "grace_s": 2}
    task["resources"] = {"cpu": "50m", "memory": "16Mi"}
    assert up.call("submit", "-f", "-", text=json.dumps(task)).returncode == 0
    wait_until(lambda: _get(up)["phase"] == "RUNNING", "the task runs")
    assert up.stop(process) == 0
    process = up.start()
    view = _get(up, "--wait", "45")
    assert (view["phase"], view["number"]) == ("SUCCEEDED", 2)
    attempts = json.loads(up.call("tasks", "attempts", "a", "--json").stdout)["items"]
    assert attempts[0]["ending"]["stop_cause"] == "shut_down"
    assert up.call("down").returncode == 0
    assert process.wait(30) == 0


def test_what_dies_is_started_again(tmp_path: Path) -> None:
    up = make_up(tmp_path)
    up.data.mkdir()
    process = up.start()
    before = read_state(up.data)
    assert before is not None
    for name in ("api", "worker", "agent", "temporal", "keeper"):
        os.kill(before.children[name].pid, signal.SIGKILL)

    def all_new() -> bool:
        now = read_state(up.data)
        assert now is not None
        kept = [n for n, c in now.children.items() if c.pid == before.children[n].pid]
        return len(now.children) == len(before.children) and not kept

    wait_until(all_new, "every process is a new one")
    deadline = time.monotonic() + 60
    code = None
    while code != 0 and time.monotonic() < deadline:
        code = up.call("run", "--cpu", "50m", "--memory", "16Mi", "--", "true").returncode
    assert code == 0
    assert up.stop(process) == 0


def _get(up: Up, *words: str) -> dict[str, object]:
    view: dict[str, object] = json.loads(up.call("tasks", "get", "a", "--json", *words).stdout)
    return view
