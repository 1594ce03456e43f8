"""The commands against a running Drystone: what they print, and their exit codes."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from drystone.client import Client
from drystone.stack.folder import read_state
from tests.cli.conftest import COMMAND_S_MAX, DRYSTONE, OUTPUT_BYTES_MAX, Up, call
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


def test_run_shows_the_output_of_every_attempt_and_says_which(up: Up) -> None:
    script = 'echo try $DRYSTONE_ATTEMPT; [ "$DRYSTONE_ATTEMPT" -ge 2 ]'
    done = up.call("run", *SMALL, "--retries", "2", "--", "sh", "-c", script)
    assert (done.stdout, done.returncode) == ("try 1\ntry 2\n", 0)
    told = [line for line in done.stderr.splitlines() if "attempt" in line]
    place = machine_of(up)
    assert told == [
        f"drystone: attempt 1 on {place}",
        f"drystone: attempt 2 on {place} (attempt 1: exited 1 nonzero exit)",
    ]


def test_quiet_is_not_silent_about_what_the_exit_code_does_not_tell(up: Up) -> None:
    slow = up.call("run", "-q", *SMALL, "--timeout", "1", "--", "sleep", "60")
    assert slow.returncode == 143
    assert "run_timeout, longer than 1 s" in slow.stderr
    never = up.call("run", "-q", *SMALL, "--", "no-such-command-anywhere")
    assert "no_such_command" in never.stderr
    plain = up.call("run", "-q", *SMALL, "--", "false")
    assert (plain.returncode, plain.stderr) == (1, "")


@pytest.mark.parametrize("words", [("run", "-q"), ("tasks", "logs"), ("tasks", "logs", "-f")])
def test_output_that_is_no_longer_kept_is_counted(up: Up, words: tuple[str, ...]) -> None:
    written = 5 * OUTPUT_BYTES_MAX
    name = "writes-much"  # One task for all three: submitting it again is the same task.
    script = f"head -c {written} /dev/zero; echo end"
    options = (*SMALL, "--id", name, "--", "sh", "-c", script)
    if words[0] == "run":
        # It has ended before it is read: by then its beginning is gone for certain.
        up.call("run", "--json", *options)
    done = up.call(*words, *(options if words[0] == "run" else (name,)))
    assert done.stdout.endswith("\0end\n")
    missing = written + len("end\n") - len(done.stdout)
    assert missing >= written - OUTPUT_BYTES_MAX
    line = f"{missing} bytes of stdout of attempt 1 are missing here, bytes 0 to {missing - 1}"
    assert line in done.stderr


def test_a_planned_restart_of_the_api_is_not_noticed_by_who_follows(up: Up) -> None:
    state = read_state(up.data)
    assert state is not None
    name = fresh()
    script = "for n in 1 2 3 4; do echo $n; sleep 0.5; done; exit 4"
    command = [*DRYSTONE, "run", *SMALL, "--id", name, "--", "sh", "-c", script]
    with subprocess.Popen(
        command, env=up.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        psutil.Process(state.children["api"].pid).terminate()
        out, err = process.communicate(timeout=COMMAND_S_MAX)
    assert (first + out, process.returncode) == ("1\n2\n3\n4\n", 4), err
    assert "missing" not in err
    assert "Error" not in err


def test_run_says_75_when_nothing_ran(up: Up) -> None:
    refused = up.call("run", "--cpu", "9999", "--", "true")
    assert refused.returncode == 75
    assert "no_room_cpu: 1" in refused.stderr
    missing = up.call("run", *SMALL, "--", "no-such-command-anywhere")
    assert missing.returncode == 75, missing
    assert "no_such_command" in missing.stderr


def test_an_option_that_does_not_fit_is_2_and_an_id_used_otherwise_65(up: Up) -> None:
    done = up.call("run", "--priority", "URGENT", "--", "true")
    assert done.returncode == 2
    assert "priority" in done.stderr
    name = fresh()
    assert up.call("run", *SMALL, "--id", name, "--", "true").returncode == 0
    assert up.call("run", *SMALL, "--id", name, "--", "false").returncode == 65


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
        ([good, huge], 75),
        ([good, wrong], 65),
    ):
        lines = "\n".join(json.dumps(task) for task in tasks)
        done = up.call("submit", "-f", "-", "--wait", "--timeout", "60", text=lines)
        assert done.returncode == code, (tasks, done)
    assert up.call("submit", "-f", "-", text=json.dumps(slow)).returncode == 0
    running = ("tasks", "list", "--phase", "running")
    wait_until(lambda: name in up.call(*running).stdout, "the slow one runs")
    done = up.call("submit", "-f", "-", "--wait", "--timeout", "1", text=json.dumps(slow))
    assert done.returncode == 77, done
    assert up.call("tasks", "cancel", name).returncode == 0


def machine_of(up: Up) -> str:
    """Asked without a process of its own: a few tests need it only to know a name."""
    with Client(up.environment["DRYSTONE_API_URL"]) as client:
        (found,) = client.machines().items
    return f"{found.cluster}/{found.name}"


def test_submit_says_75_when_a_task_ended_without_running(up: Up) -> None:
    machine = machine_of(up)
    up.call("cordon", machine)
    task = {"command": ["true"], "queue_timeout_s": 1, "resources": {"cpu": "50m"}}
    done = up.call("submit", "-f", "-", "--wait", text=json.dumps([task]))
    up.call("uncordon", machine)
    assert done.returncode == 75, done
    assert "EXPIRED" in done.stdout


def test_a_machine_is_drained_and_undrained(up: Up) -> None:
    machine = machine_of(up)
    drained = up.call("drain", machine, "--deadline", "600")
    undrained = up.call("undrain", machine)
    assert (drained.returncode, undrained.returncode) == (0, 0), (drained, undrained)
    assert re.match(f"{machine}: reachable, cordoned, drain(ed|ing)", drained.stdout), drained
    assert undrained.stdout == f"{machine}: reachable\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"command": ["true"]}\n\n{"command": "true"}', "-, line 3: command: must be a list"),
        ('[{"command": ["true"]}, {}]', "-, task 2 of 2: command: is needed"),
    ],
)
def test_submit_names_the_entry_that_does_not_fit(up: Up, text: str, place: str) -> None:
    done = up.call("submit", "-f", "-", text=text)
    assert done.returncode == 65
    assert place in done.stderr


def test_all_are_cancelled_whatever_becomes_of_the_first(up: Up) -> None:
    names = [fresh(), fresh()]
    lines = "\n".join(
        json.dumps({"id": name, "command": ["sleep", "60"], "resources": {"cpu": "50m"}})
        for name in names
    )
    assert up.call("submit", "-f", "-", text=lines).returncode == 0
    done = up.call("tasks", "cancel", "none-such", *names)
    assert done.returncode == 67
    assert "none-such" in done.stderr
    for name in names:
        assert name in done.stdout
        view = json.loads(up.call("tasks", "get", name, "--wait", "20", "--json").stdout)
        assert view["phase"] == "CANCELLED"


def test_a_running_attempt_shows_since_when_it_is_there(up: Up) -> None:
    name = fresh()
    task = {"id": name, "command": ["sleep", "60"], "grace_s": 0, "resources": {"cpu": "50m"}}
    up.call("submit", "-f", "-", text=json.dumps(task))

    def shown() -> tuple[str, str]:
        header, row = up.call("tasks", "attempts", name).stdout.splitlines()
        assert header.split() == ["ATTEMPT", "WHERE", "PLACED", "STARTED", "ENDED", "HOW"]
        return row[header.index("PLACED") :], row[header.index("STARTED") :]

    wait_until(lambda: "admitted" in up.call("tasks", "attempts", name).stdout, "it is admitted")
    assert shown()[0].startswith("20")
    # Its agent is asked, and may itself have to hear of it first.
    wait_until(lambda: shown()[1].startswith("20"), "it is shown when it started")
    up.call("tasks", "cancel", name)


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
    assert "local" in up.call("clusters").stdout
    assert machine_of(up) in up.call("machines").stdout
    (listed,) = json.loads(up.call("machines", "list", "--json").stdout)
    assert f"{listed['cluster']}/{listed['name']}" == machine_of(up)
    assert json.loads(up.call("clusters", "get", "local", "--json").stdout)["state"] == "reachable"
    assert up.call("brake").stdout.startswith("not held\n")
    assert "machines" in up.call("top", "--once").stdout
    assert "STRANDED" in up.call("machines", "headroom").stdout
    room = json.loads(up.call("machines", "headroom", "--json").stdout)
    assert room["resources"]["cpu_milli"]["capacity"] == listed["capacity"]["cpu_milli"]


def test_ctrl_c_cancels_what_run_has_submitted(up: Up) -> None:
    name = fresh()
    command = [*DRYSTONE, "run", *SMALL, "--grace", "1", "--id", name, "--", "sleep", "60"]
    process = subprocess.Popen(
        command, env=up.environment, start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    runs = ("tasks", "list", "--phase", "running")
    wait_until(lambda: name in up.call(*runs).stdout, "the task runs")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=COMMAND_S_MAX)
    assert process.returncode == 130
    assert f"cancelling default/{name}" in told
    assert f"default/{name} cancelled" in told
    view = json.loads(up.call("tasks", "get", name, "--json").stdout)
    assert view["phase"] == "CANCELLED"


def test_a_reader_that_leaves_ends_the_command_and_not_the_task(up: Up) -> None:
    name = fresh()
    command = [*DRYSTONE, "run", *SMALL, "--grace", "0", "--id", name, "--", "yes"]
    with subprocess.Popen(
        command, env=up.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "y\n"
        process.stdout.close()
        assert process.wait(COMMAND_S_MAX) == 141
        assert f"default/{name} goes on" in process.stderr.read()
    assert "told to end" in up.call("tasks", "cancel", name).stdout


def test_a_detached_task_is_named_and_left_to_itself(up: Up) -> None:
    done = up.call("run", "--detach", *SMALL, "--", "sh", "-c", "echo later")
    key = done.stdout.strip()
    assert (done.returncode, key.startswith("default/t-")) == (0, True), done
    followed = up.call("tasks", "logs", "--follow", key)
    assert (followed.returncode, followed.stdout) == (0, "later\n")


def test_completion_is_offered(up: Up) -> None:
    asked = {"_DRYSTONE_COMPLETE": "complete_bash", "COMP_WORDS": "drystone ta", "COMP_CWORD": "1"}
    beside = Path(sys.executable).parent / "drystone"
    done = subprocess.run(
        [beside], env={**up.environment, **asked}, capture_output=True, text=True, check=False
    )
    assert "tasks" in done.stdout
