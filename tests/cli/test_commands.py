"""The commands against a running Drystone: what they print, and their exit codes."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.conftest import COMMAND_S_MAX, DRYSTONE, Up, call
from tests.support.fleet import wait_until

SMALL = ("--cpu", "50m", "--memory", "16Mi")


def fresh() -> str:
    return f"t-{uuid4().hex[:12]}"


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_run_exits_as_the_task_did(up: Up, script: str, code: int) -> None:
    assert up.call("run", *SMALL, "--", "sh", "-c", script).returncode == code


def test_run_keeps_the_two_outputs_apart(up: Up) -> None:
    done = up.call("run", "-q", *SMALL, "-e", "A=b c", "--", "sh", "-c", 'echo "$A"; echo no >&2')
    assert (done.stdout, done.stderr, done.returncode) == ("b c\n", "no\n", 0)


def test_run_shows_the_output_of_every_attempt(up: Up) -> None:
    script = 'echo try $DRYSTONE_ATTEMPT; [ "$DRYSTONE_ATTEMPT" -ge 2 ]'
    done = up.call("run", "-q", *SMALL, "--retries", "2", "--", "sh", "-c", script)
    assert (done.stdout, done.returncode) == ("try 1\ntry 2\n", 0)


def test_run_says_75_when_nothing_ran(up: Up) -> None:
    refused = up.call("run", "--cpu", "9999", "--", "true")
    assert refused.returncode == 75
    assert "no_room_cpu: 1" in refused.stderr
    missing = up.call("run", *SMALL, "--", "no-such-command-anywhere")
    assert missing.returncode in (75, 127), missing
    assert "no_such_command" in missing.stderr


def test_run_says_65_when_the_submission_does_not_fit(up: Up) -> None:
    done = up.call("run", "--priority", "URGENT", "--", "true")
    assert done.returncode == 65
    assert "priority" in done.stderr


def test_run_says_69_when_the_api_cannot_be_reached() -> None:
    done = call(["run", "--", "true"], {"DRYSTONE_API_URL": "http://127.0.0.1:9"})
    assert done.returncode == 69
    assert "127.0.0.1:9" in done.stderr


def test_run_as_json_is_one_document(up: Up) -> None:
    done = up.call("run", "--json", *SMALL, "--", "sh", "-c", "echo out; exit 4")
    assert done.returncode == 4
    assert json.loads(done.stdout)["outcome"]["exit_code"] == 4


def test_submit_tells_queued_never_feasible_and_failed_apart(up: Up) -> None:
    small = {"resources": {"cpu": "50m", "memory": "16Mi"}}
    good, bad = {**small, "command": ["true"]}, {**small, "command": ["false"]}
    huge = {"command": ["true"], "resources": {"cpu": "9999", "memory": "1Gi"}}
    wrong = {"command": ["true"], "colour": "red"}
    # Labels can come with a machine that joins later, so nothing is refused for a cordon.
    assert up.call("cordon", machine_of(up)).returncode == 0
    queued = up.call("submit", "-f", "-", "--wait", "--timeout", "1", text=json.dumps(good))
    assert queued.returncode == 76, queued
    assert up.call("uncordon", machine_of(up)).returncode == 0
    name = fresh()
    slow = {**small, "command": ["sleep", "30"], "id": name}
    for tasks, code in (
        ([good, good], 0),
        ([good, bad], 1),
        ([good, huge], 66),
        ([good, wrong], 65),
        ([good, slow], 77),
    ):
        lines = "\n".join(json.dumps(task) for task in tasks)
        done = up.call("submit", "-f", "-", "--wait", "--timeout", "8", text=lines)
        assert done.returncode == code, (tasks, done)
    assert up.call("tasks", "cancel", name).returncode == 0


def machine_of(up: Up) -> str:
    found = json.loads(up.call("machines", "list", "--json").stdout)[0]
    return f"{found['cluster']}/{found['name']}"


def test_submit_says_75_when_a_task_ended_without_running(up: Up) -> None:
    machine = machine_of(up)
    up.call("cordon", machine)
    task = {"command": ["true"], "queue_timeout_s": 1, "resources": {"cpu": "50m"}}
    done = up.call("submit", "-f", "-", "--wait", text=json.dumps([task]))
    up.call("uncordon", machine)
    assert done.returncode == 75, done
    assert "EXPIRED" in done.stdout


@pytest.mark.parametrize("text", ['{"command": ', "[1]", '{"a": 1}\nno'])
def test_submit_names_the_line_that_is_none(up: Up, text: str) -> None:
    assert up.call("submit", "-f", "-", text=text).returncode == 65


def test_a_file_that_is_not_there_is_named(up: Up) -> None:
    done = up.call("submit", "-f", "/no/such/file")
    assert done.returncode == 2
    assert "/no/such/file" in done.stderr


def test_tasks_are_looked_at_and_ended(up: Up) -> None:
    name = fresh()
    task = {"id": name, "command": ["sh", "-c", "echo here; sleep 60"], "grace_s": 1}
    task["resources"] = {"cpu": "50m", "memory": "16Mi"}
    assert up.call("submit", "-f", "-", text=json.dumps(task)).stdout.strip() == f"default/{name}"
    followed = None
    for _ in range(50):
        followed = up.call("tasks", "logs", name)
        if followed.stdout:
            break
    assert followed is not None
    assert followed.stdout == "here\n"
    assert name in up.call("tasks", "list", "--phase", "running").stdout
    assert "runs on machine" in up.call("tasks", "explain", name).stdout
    assert up.call("tasks", "cancel", name).returncode == 0
    view = json.loads(up.call("tasks", "get", name, "--wait", "20", "--json").stdout)
    assert view["phase"] == "CANCELLED"
    events = json.loads(up.call("tasks", "events", f"default/{name}", "--json").stdout)["items"]
    assert [e["kind"] for e in events][-1] == "finished"
    assert "CANCELLED" in up.call("tasks", "list").stdout


def test_what_is_not_known_is_67(up: Up) -> None:
    done = up.call("tasks", "get", "none-such")
    assert done.returncode == 67
    assert "none-such" in done.stderr


def test_places_are_listed(up: Up) -> None:
    assert "local" in up.call("clusters", "list").stdout
    assert json.loads(up.call("clusters", "get", "local", "--json").stdout)["state"] == "reachable"
    assert up.call("brake").stdout.strip() == "not held"
    assert "machines" in up.call("top", "--once").stdout


def test_ctrl_c_cancels_what_run_has_submitted(up: Up) -> None:
    name = fresh()
    command = [*DRYSTONE, "run", *SMALL, "--grace", "1", "--id", name, "--", "sleep", "60"]
    process = subprocess.Popen(command, env=up.environment, start_new_session=True)
    runs = ("tasks", "list", "--phase", "running")
    wait_until(lambda: name in up.call(*runs).stdout, "the task runs")
    process.send_signal(signal.SIGINT)
    assert process.wait(COMMAND_S_MAX) != 0
    view = json.loads(up.call("tasks", "get", name, "--json").stdout)
    assert view["phase"] == "CANCELLED"


def test_completion_is_offered(up: Up) -> None:
    asked = {"_DRYSTONE_COMPLETE": "complete_bash", "COMP_WORDS": "drystone ta", "COMP_CWORD": "1"}
    beside = Path(sys.executable).parent / "drystone"
    done = subprocess.run(
        [beside], env={**up.environment, **asked}, capture_output=True, text=True, check=False
    )
    assert "tasks" in done.stdout
