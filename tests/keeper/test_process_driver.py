"""Real processes under a real keeper: how they start, what they see, how they and theirs end."""

import base64
import sys
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import pytest

from domain.attempt import EndKind, StopCause
from domain.protocol import AttemptEnded
from domain.reasons import Reason
from keeper.spawn import Surroundings, attempt_folder, working_folder
from tests.keeper.attempt_builders import start_of
from tests.keeper.fake_agent import FakeAgent, alive, pid_in, size, until

PYTHON = sys.executable


async def run(agent: FakeAgent, *command: str, **spec) -> AttemptEnded:
    return await agent.ending(await agent.start(*command, **spec))


def segments(folder: Path, stream: str) -> list[Path]:
    return sorted(folder.glob(f"{stream}-*"))


async def output(agent: FakeAgent, attempt: str, stream: str = "stdout") -> str:
    return base64.b64decode((await agent.log(attempt, stream)).data).decode()


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [
        ("exit 0", 0, None),
        ("exit 3", 3, Reason.NONZERO_EXIT),
        ("kill -9 $$", 137, Reason.KILLED_BY_SIGNAL),
        ("kill -TERM $$", 143, Reason.KILLED_BY_SIGNAL),
    ],
)
async def test_the_exit_code_is_reported(shared, script, code, reason):
    ended = await run(shared, "sh", "-c", script, name=f"code-{code}")
    assert ended.ending.kind is EndKind.EXITED
    assert (ended.ending.exit_code, ended.ending.reason) == (code, reason)
    assert ended.started_at is not None
    assert ended.started_at == (await shared.running(ended.attempt)).at


async def test_an_attempt_sees_its_specification_and_little_else(shared):
    long = "x" * 100_000
    attempt = await shared.start("env", name="env", number=7, env={"LONG": long, "MINE": "1"})
    await shared.ending(attempt)
    seen = dict(line.split("=", 1) for line in (await output(shared, attempt)).splitlines())
    assert seen.pop("LONG") == long
    assert seen.pop("MINE") == "1"
    assert seen.pop("DRYSTONE_MARK").endswith(f":{attempt}")
    given = {name: seen.pop(name) for name in list(seen) if name.startswith("DRYSTONE_")}
    assert given == {
        "DRYSTONE_TASK_ID": "env",
        "DRYSTONE_ATTEMPT": "7",
        "DRYSTONE_TEAM": "default",
        "DRYSTONE_CLUSTER": "c",
        "DRYSTONE_MACHINE": "m",
    }
    assert not seen.keys() - {
        "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME",
    }  # fmt: skip


async def test_descriptors_of_the_keeper_do_not_reach_an_attempt(shared):
    attempt = await shared.start("ls", "/proc/self/fd", name="fds")
    await shared.ending(attempt)
    # 3 is the folder that ls reads.
    assert (await output(shared, attempt)).split() == ["0", "1", "2", "3"]


async def test_each_attempt_has_a_working_folder_of_its_own(shared):
    folders = []
    for number in (1, 2):
        attempt = await shared.start("sh", "-c", "pwd; ls; touch a", name="wd", number=number)
        await shared.ending(attempt)
        folders.append(await output(shared, attempt))
    assert folders[0] != folders[1]
    assert all(len(shown.splitlines()) == 1 for shown in folders), "they are empty"


async def test_a_working_folder_can_be_asked_for(shared, tmp_path):
    folder = tmp_path / "wanted" / "and made"
    attempt = await shared.start("pwd", name="wanted", working_dir=str(folder))
    await shared.ending(attempt)
    assert await output(shared, attempt) == f"{folder}\n"


async def test_a_relative_working_folder_is_made_in_that_of_the_attempt(shared):
    attempt = await shared.start("pwd", name="relative", working_dir="a/b")
    await shared.ending(attempt)
    assert (await output(shared, attempt)).endswith("relative#1/a/b\n")


async def test_a_relative_working_folder_never_leaves_that_of_the_attempt(shared, tmp_path):
    own = tmp_path / "keeper" / "attempts"
    around = Surroundings(own, "mark", "c", "m", {})
    aside = tmp_path / "aside"
    aside.mkdir()
    for number, path in enumerate(("../../x", "a/../../../x", "link/x"), start=1):
        start = start_of("t", number, working_dir=path)
        folder = attempt_folder(own, start.attempt)
        folder.mkdir(parents=True)
        (folder / "link").symlink_to(aside)
        with pytest.raises(PermissionError, match="leaves the attempt's folder"):
            working_folder(start, around)
    assert not list(aside.iterdir())
    assert not list(tmp_path.rglob("x"))
    ended = await run(shared, "true", name="leaves", working_dir="../../../x")
    assert ended.ending.reason is Reason.WORKING_FOLDER


async def test_what_cannot_start_says_why(shared, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "plain").write_text("not a program")
    (tmp_path / "plain").chmod(0o755)
    cases = [
        (("no-such-command-anywhere",), {}, Reason.NO_SUCH_COMMAND),
        (("./missing",), {}, Reason.NO_SUCH_COMMAND),
        (("true",), {"working_dir": str(tmp_path / "file")}, Reason.WORKING_FOLDER),
        (("true",), {"working_dir": str(tmp_path / "file" / "x")}, Reason.WORKING_FOLDER),
        ((str(tmp_path / "plain"),), {}, Reason.CANNOT_START),
        (("true", *["y" * 100_000] * 30), {}, Reason.CANNOT_START),
    ]
    for number, (command, spec, reason) in enumerate(cases):
        ended = await run(shared, *command, name=f"cannot-{number}", **spec)
        assert (ended.ending.kind, ended.ending.reason) == (EndKind.EXITED, reason), command[0]
        assert ended.ending.exit_code is None
        assert ended.ending.detail
        assert ended.started_at is None


async def test_use_is_measured(shared):
    # The kernel's figure of a short attempt begins at its parent's peak: go beyond that.
    ours_mib = getrusage(RUSAGE_SELF).ru_maxrss // 1024
    taken = (ours_mib + 150) * 1024 * 1024
    script = f"import time; x = b'x' * {taken}\nwhile time.process_time() < 0.3: pass"
    ended = await run(shared, PYTHON, "-c", script, name="use")
    assert 300 <= ended.ending.usage.cpu_ms < 5_000
    assert ours_mib + 140 <= ended.ending.usage.memory_peak_mib < ours_mib + 300
    assert ended.ending.usage.wall_ms >= 250


async def test_both_streams_are_kept_to_the_last_byte(shared):
    script = "import sys\nfor n in range(50_000): print(n)\nprint('oops', file=sys.stderr)"
    attempt = await shared.start(PYTHON, "-c", script, name="much")
    await shared.ending(attempt)
    assert (await output(shared, attempt)).split() == [str(n) for n in range(50_000)]
    assert await output(shared, attempt, "stderr") == "oops\n"
    last = await shared.log(attempt, offset=10, limit=4)
    assert (base64.b64decode(last.data), last.first, last.ended) == (b"5\n6\n", 10, False)
    assert (await shared.log(attempt, offset=10**9)).ended
    assert not (await shared.log("default/never#1")).known
    assert not (await shared.log("../..#1")).known


async def test_output_can_be_read_while_it_is_written(shared, tmp_path):
    script = f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo two"
    attempt = await shared.start("sh", "-c", script, name="follow")
    await shared.running(attempt)
    seen = ""
    while not seen:
        seen = await output(shared, attempt)
    assert seen == "one\n"
    assert not (await shared.log(attempt, offset=4)).ended
    (tmp_path / "go").touch()
    await shared.ending(attempt)
    assert await output(shared, attempt) == "one\ntwo\n"


async def test_a_victim_that_exits_0_on_the_signal_is_stopped_and_not_exited(shared, tmp_path):
    script = f"trap 'exit 0' TERM; touch {tmp_path}/ready; while :; do sleep 0.02; done"
    attempt = await shared.start("sh", "-c", script, name="victim")
    await until((tmp_path / "ready").exists, "ready")
    await shared.stop(attempt, cause=StopCause.PREEMPT)
    ended = await shared.ending(attempt)
    assert ended.ending.kind is EndKind.STOPPED
    assert ended.ending.exit_code == 0
    assert ended.ending.stop_cause is StopCause.PREEMPT


async def test_the_commands_of_a_victims_cleaning_up_are_left_alone(shared, tmp_path):
    clean = f"sleep 0.5 && touch {tmp_path}/cleaned; exit 0"
    script = f"trap '{clean}' TERM; touch {tmp_path}/ready; while :; do sleep 0.02; done"
    attempt = await shared.start("sh", "-c", script, name="tidy")
    await until((tmp_path / "ready").exists, "ready")
    await shared.stop(attempt, grace_s=20)
    await shared.ending(attempt)
    assert (tmp_path / "cleaned").exists()


async def test_after_the_grace_the_stubborn_are_killed(shared, tmp_path):
    script = f"trap '' TERM; touch {tmp_path}/ready; while :; do sleep 0.02; done"
    attempt = await shared.start("sh", "-c", script, name="stubborn")
    await until((tmp_path / "ready").exists, "ready")
    await shared.stop(attempt, grace_s=1)
    ended = await shared.ending(attempt)
    assert (ended.ending.kind, ended.ending.exit_code) == (EndKind.STOPPED, 137)
    assert ended.ending.usage.wall_ms >= 1_000


async def test_a_stop_reaches_children_in_sessions_of_their_own(shared, tmp_path):
    trap = f"trap 'touch {tmp_path}/told; exit' TERM"
    inner = f"{trap}; echo $$ > {tmp_path}/pid; while :; do sleep 0.02; done"
    attempt = await shared.start("sh", "-c", f'setsid sh -c "{inner}" & wait', name="setsid")
    pid = await pid_in(tmp_path / "pid")
    await shared.stop(attempt)
    await shared.ending(attempt)
    assert not alive(pid)
    assert (tmp_path / "told").exists(), "it was given its grace"


DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(1000)
"""


@pytest.mark.parametrize("prefix", [[], ["env", "-i"]], ids=["marked", "unmarked"])
async def test_what_the_main_child_leaves_behind_is_killed_before_the_end(shared, tmp_path, prefix):
    words = " ".join([*prefix, PYTHON, "-c", f"'{DAEMON}'", str(tmp_path / "pid")])
    wait = f"while [ ! -e {tmp_path}/pid ]; do sleep 0.02; done"
    attempt = await shared.start(
        "sh", "-c", f"{words}; {wait}; exit 5", name=f"daemon{len(prefix)}"
    )
    pid = await pid_in(tmp_path / "pid")
    ended = await shared.ending(attempt)
    assert (ended.ending.kind, ended.ending.exit_code) == (EndKind.EXITED, 5)
    assert not alive(pid)


HOPPER = """
import os, sys, time
end = time.monotonic() + 60
with open(sys.argv[1], "ab", buffering=0) as file:
    file.write(b"x")
    while time.monotonic() < end:
        if os.fork(): os._exit(0)
        os.setsid()
        file.write(b"x")
"""


async def test_a_process_that_hops_from_pid_to_pid_is_caught(shared, tmp_path):
    other = await shared.start("sleep", "1000", name="beside-hopper")
    hopping = f"{PYTHON} -c '{HOPPER}' {tmp_path}/hops"
    wait = f"while [ $(wc -c < {tmp_path}/hops) -lt 20 ]; do sleep 0.02; done"
    attempt = await shared.start("sh", "-c", f"{hopping}; {wait}", name="hopper")
    ended = await shared.ending(attempt)
    hops = size(tmp_path / "hops")
    assert ended.ending.success
    await run(shared, "sleep", "0.3", name="meanwhile")
    assert size(tmp_path / "hops") == hops >= 20
    await shared.stop(other)
    await shared.ending(other)


async def test_the_end_of_one_attempt_leaves_the_daemons_of_another_alone(shared, tmp_path):
    words = f"{PYTHON} -c '{DAEMON}' {tmp_path}/pid; sleep 1000"
    other = await shared.start("sh", "-c", words, name="other")
    pid = await pid_in(tmp_path / "pid")
    for number in range(3):
        await run(shared, "true", name="mine", number=number + 1)
    assert alive(pid)
    await shared.stop(other)
    await shared.ending(other)
    assert not alive(pid)


async def test_a_daemon_that_drops_its_environment_dies_with_a_stop_of_its_parent(shared, tmp_path):
    other = await shared.start("sleep", "1000", name="beside-bare")
    inner = f"echo $$ > {tmp_path}/pid; sleep 1000"
    attempt = await shared.start("sh", "-c", f"env -i setsid sh -c '{inner}'; true", name="bare")
    pid = await pid_in(tmp_path / "pid")
    await shared.stop(attempt)
    await shared.ending(attempt)
    assert not alive(pid)
    await shared.stop(other)
    await shared.ending(other)


async def test_the_run_timeout_stops_an_attempt_under_its_own_cause(shared):
    ended = await run(shared, "sleep", "1000", name="long", run_timeout_s=1)
    assert ended.ending.kind is EndKind.STOPPED
    assert ended.ending.stop_cause is StopCause.RUN_TIMEOUT
    assert ended.ending.reason is Reason.RUN_TIMEOUT
    assert 1_000 <= ended.ending.usage.wall_ms < 20_000


async def test_many_at_once_all_end_and_leave_nothing_open(shared):
    attempts = [await shared.start("sh", "-c", "echo $$", name=f"many-{n}") for n in range(100)]
    for attempt in attempts:
        assert (await shared.ending(attempt)).ending.success
    assert len({await output(shared, attempt) for attempt in attempts}) == 100


async def test_output_beyond_the_bound_is_rotated_away(agent, keep):
    keep(DRYSTONE_OUTPUT_BYTES_MAX="20000")
    await agent.leased()
    script = "for n in range(10_000): print(f'{n:09}')"
    attempt = await agent.start(PYTHON, "-c", script)
    await agent.ending(attempt)
    answer = await agent.log(attempt)
    kept = base64.b64decode(answer.data)
    assert answer.known
    assert answer.ended
    assert 10_000 <= len(kept) <= 20_000
    assert answer.first + len(kept) == 100_000, "offsets count everything ever written"
    assert kept.endswith(b"000009999\n")
    assert int(kept[:9]) * 10 == answer.first


async def test_the_folder_of_an_attempt_is_where_people_look_for_it(agent, keep, tmp_path):
    keeper = keep()
    await agent.leased()
    await agent.ending(await agent.start("sh", "-c", "echo hello; echo x > made", team="blue"))
    folder: Path = keeper.folder / "attempts" / "blue" / "t#1"
    assert (folder / "work" / "made").read_text() == "x\n"
    assert [size(file) for file in segments(folder, "stdout")] == [6]
