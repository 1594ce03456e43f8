"""Deaths, silences and returns of a keeper, its warden and its agent, with real processes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from domain.attempt import EndKind, StopCause
from domain.reasons import Reason
from domain.task import OnLoss
from keeper.census import processes, trees
from tests.keeper.fake_agent import FakeAgent, KeeperProcess, alive, pid_in, size, until

STILL_S = 1.0
"""A counter that has not moved for so long, at 50 steps a second, stands still."""


def counter(path: Path, *, detached: bool = False) -> tuple[str, ...]:
    """A command that appends to a file for ever; `detached`: by a grandchild in its own session."""
    loop = f"echo $$ > {path}.pid; while :; do echo x >> {path}; sleep 0.02; done"
    return ("sh", "-c", f'setsid sh -c "{loop}" & wait' if detached else loop)


async def moves(path: Path) -> None:
    before = size(path)
    await until(lambda: size(path) > before, f"{path} moves")


async def stands_still(path: Path) -> None:
    """Until nothing has been written for a while; fails when it never stands still."""
    seen, since = size(path), time.monotonic()

    def still() -> bool:
        nonlocal seen, since
        if size(path) != seen:
            seen, since = size(path), time.monotonic()
        return time.monotonic() - since > STILL_S

    await until(still, f"{path} stands still", 30)


def refused(*flags: str) -> subprocess.CompletedProcess[str]:
    """A keeper that ends by itself."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "keeper", *flags],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def marked(keeper: KeeperProcess) -> set[int]:
    return set(trees(processes(), f"{keeper.mark()}."))


def warden_pid(keeper: KeeperProcess) -> int:
    for process in processes().values():
        if process.parent == keeper.pid:
            with contextlib.suppress(FileNotFoundError):
                if b"keeper.warden" in Path(f"/proc/{process.pid}/cmdline").read_bytes():
                    return process.pid
    return 0


async def test_without_an_agent_attempts_freeze_at_the_deadline_and_a_grant_thaws_them(
    agent, keep, tmp_path
):
    agent.lease_ms = 1_500
    keep(DRYSTONE_LEASE_S="1.5", DRYSTONE_SUSPECT_S="1", DRYSTONE_HEARTBEAT_S="0.5")
    await agent.leased()
    plain, waiting, closed = tmp_path / "plain", tmp_path / "waiting", tmp_path / "closed"
    attempt = await agent.start(*counter(plain, detached=True), name="plain")
    await agent.start(*counter(waiting), name="waiting", on_loss=OnLoss.WAIT)
    over = await agent.start(*counter(closed), name="closed")
    for path in (plain, waiting, closed):
        await moves(path)
    agent.answers = False
    await stands_still(plain)
    await stands_still(closed)
    await moves(waiting)
    assert not agent.ended
    # An answer of the old epoch comes too late: it must not thaw.
    count, closed_count = size(plain), size(closed)
    asked = len(agent.questions)
    await until(lambda: len(agent.questions) > asked + 2, "it goes on asking")
    assert agent.questions[-1].epoch == 0
    assert size(plain) == count
    agent.epoch, agent.closed, agent.answers = 2, (over,), True
    await moves(plain)
    ended = await agent.ending(over)
    assert (ended.ending.kind, ended.ending.stop_cause) == (EndKind.STOPPED, StopCause.SUPERSEDED)
    assert size(closed) == closed_count
    await agent.stop(attempt)
    await agent.ending(attempt)


async def test_a_stop_for_a_frozen_attempt_kills_it_unthawed(agent, keep, tmp_path):
    agent.lease_ms = 1_500
    keep(DRYSTONE_LEASE_S="1.5", DRYSTONE_SUSPECT_S="1", DRYSTONE_HEARTBEAT_S="0.5")
    await agent.leased()
    path = tmp_path / "count"
    attempt = await agent.start(*counter(path))
    await moves(path)
    agent.answers = False
    await stands_still(path)
    count = size(path)
    await agent.stop(attempt, grace_s=100)
    ended = await agent.ending(attempt)
    assert (ended.ending.kind, ended.ending.exit_code) == (EndKind.STOPPED, 137)
    assert size(path) == count


async def test_a_keeper_that_is_held_up_past_its_deadline_has_its_attempts_frozen_by_the_warden(
    agent, keep, tmp_path
):
    agent.lease_ms = 2_000
    keeper = keep(DRYSTONE_LEASE_S="2", DRYSTONE_SUSPECT_S="1", DRYSTONE_HEARTBEAT_S="0.5")
    await agent.leased()
    plain, waiting = tmp_path / "plain", tmp_path / "waiting"
    await agent.start(*counter(plain, detached=True), name="plain")
    await agent.start(*counter(waiting), name="waiting", on_loss=OnLoss.WAIT)
    await moves(plain)
    await moves(waiting)
    os.kill(keeper.pid, signal.SIGSTOP)
    await stands_still(plain)
    await moves(waiting)
    agent.epoch = 2
    os.kill(keeper.pid, signal.SIGCONT)
    await moves(plain)
    assert not agent.ended


async def test_when_a_keeper_is_killed_its_warden_kills_every_tree(agent, keep, tmp_path):
    keeper = keep()
    await agent.leased()
    paths = [tmp_path / name for name in ("plain", "detached", "waiting")]
    await agent.start(*counter(paths[0]), name="plain")
    await agent.start(*counter(paths[1], detached=True), name="detached")
    await agent.start(*counter(paths[2]), name="waiting", on_loss=OnLoss.WAIT)
    pids = [await pid_in(Path(f"{path}.pid")) for path in paths]
    # A main child without the mark is found by the journal, and its session by it.
    bare = await agent.start("env", "-i", *counter(tmp_path / "bare"), name="bare")
    await agent.running(bare)
    pids.append(await pid_in(tmp_path / "bare.pid"))
    warden = warden_pid(keeper)
    keeper.kill()
    await until(lambda: not any(map(alive, pids)), "all are dead within seconds", 10)
    await until(lambda: not alive(warden), "the warden has ended, too")


async def test_a_restart_kills_what_is_left_and_registers_as_another_instance(
    agent, keep, tmp_path
):
    keeper = keep()
    await agent.leased()
    path = tmp_path / "count"
    live = await agent.start(*counter(path, detached=True), name="live")
    pid = await pid_in(Path(f"{path}.pid"))
    agent.forgets = False
    done = await agent.start("sh", "-c", "exit 4", name="done")
    ended = await agent.ending(done)
    # The warden dies with its keeper, so that the restart has to do the killing.
    os.kill(keeper.pid, signal.SIGSTOP)
    os.kill(warden_pid(keeper), signal.SIGKILL)
    keeper.kill()
    await moves(path)
    agent.ended.clear()
    asked = len(agent.questions)
    keeper.run()
    await until(lambda: len(agent.hellos) == 2, "a second hello")
    assert not alive(pid)
    first, second = agent.hellos
    assert first.machine.instance != second.machine.instance
    assert (second.live, second.epoch) == ((), 0)
    assert (await agent.ending(done)) == ended, "kept, and sent again"
    assert live not in agent.ended, "the agent reports it, from the new instance"
    await agent.leased(asked)
    count = size(path)
    await agent.start(*counter(path, detached=True), name="live")
    again = await agent.ending(live)
    assert (again.ending.kind, again.ending.reason) == (EndKind.LOST, Reason.KEEPER_LOST)
    assert size(path) == count, "a number is never started twice"


async def test_a_dead_warden_is_replaced(agent, keep, tmp_path):
    keeper = keep()
    await agent.leased()
    path = tmp_path / "count"
    await agent.start(*counter(path))
    await moves(path)
    first = warden_pid(keeper)
    assert first
    os.kill(first, signal.SIGKILL)
    await until(lambda: warden_pid(keeper) not in (0, first), "another warden")
    await moves(path)
    keeper.kill()
    await until(lambda: not marked(keeper), "the second warden does its work")


async def test_an_agent_that_comes_back_finds_everything_running(agent, keep, tmp_path):
    keep()
    await agent.leased()
    path = tmp_path / "count"
    attempt = await agent.start(*counter(path))
    await moves(path)
    await agent.socket.close()
    await until(lambda: len(agent.hellos) == 2, "it dials again")
    assert agent.hellos[1].live == (attempt,)
    assert agent.hellos[1].epoch == 1
    assert agent.hellos[0].machine == agent.hellos[1].machine
    await moves(path)


async def test_an_ending_is_sent_at_each_connection_until_it_is_forgotten(agent, keep):
    keep()
    await agent.leased()
    agent.forgets = False
    attempt = await agent.start("true")
    await agent.ending(attempt)
    await agent.socket.close()
    await until(lambda: agent.endings_seen == 2, "sent again")
    agent.forgets = True
    await agent.socket.close()
    await until(lambda: agent.endings_seen == 3, "sent a third time, and forgotten")
    await agent.socket.close()
    await until(lambda: len(agent.hellos) == 4, "it dials again")
    await agent.start("true", name="next")
    await agent.ending("default/next#1")
    assert agent.endings_seen == 4


async def test_a_stop_that_came_first_refuses_the_start_even_after_a_restart(agent, keep, tmp_path):
    keeper = keep()
    await agent.leased()
    await agent.stop("default/t#1", cause=StopCause.DRAIN)
    ended = await agent.ending("default/t#1")
    assert (ended.ending.kind, ended.ending.stop_cause) == (EndKind.STOPPED, StopCause.DRAIN)
    keeper.kill()
    asked = len(agent.questions)
    keeper.run()
    await agent.leased(asked)
    agent.ended.clear()
    await agent.start("touch", str(tmp_path / "ran"))
    assert (await agent.ending("default/t#1")).ending == ended.ending
    assert not (tmp_path / "ran").exists()


async def test_on_sigterm_a_keeper_stops_its_attempts_reports_them_and_exits_0(
    agent, keep, tmp_path
):
    keeper = keep("--shutdown-grace", "2")
    await agent.leased()
    path = tmp_path / "told"
    script = (
        f"trap 'echo x > {path}; exit 0' TERM; touch {path}.ready; while :; do sleep 0.02; done"
    )
    polite = await agent.start("sh", "-c", script, name="polite")
    deaf = await agent.start(
        "sh", "-c", f"trap '' TERM; touch {path}.deaf; while :; do sleep 0.02; done", name="deaf"
    )
    await until(lambda: Path(f"{path}.ready").exists() and Path(f"{path}.deaf").exists(), "ready")
    keeper.process.terminate()
    for attempt, code in ((polite, 0), (deaf, 137)):
        ending = (await agent.ending(attempt)).ending
        assert (ending.kind, ending.stop_cause) == (EndKind.STOPPED, StopCause.SHUT_DOWN)
        assert ending.exit_code == code
    await until(lambda: keeper.process.poll() is not None, "it has ended")
    assert keeper.process.returncode == 0
    assert size(path) == 2
    assert not marked(keeper)


async def test_a_second_keeper_on_the_same_folder_is_refused(agent, keep):
    keeper = keep()
    await agent.leased()
    second = refused(*keeper.flags)
    assert second.returncode == 1
    assert f"another keeper (process {keeper.pid}) uses the folder" in second.stderr
    assert len(second.stderr.splitlines()) == 1


def test_what_is_wrong_with_the_settings_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    cases = [
        (["--folder", str(tmp_path / "file")], "cannot be used"),
        (["--agent", "ftp://x"], "no agent address"),
        (["--cpu", "many"], "cpu"),
        (["--name", "a/b"], "name"),
        (["--label", "k y=v"], "labels"),
    ]
    for flags, message in cases:
        ended = refused("--folder", str(tmp_path / "k"), *flags)
        assert ended.returncode in (1, 2), flags
        assert message in ended.stderr, ended.stderr
        assert "Traceback" not in ended.stderr


async def test_the_hello_says_what_the_machine_has(agent, keep):
    keep("--gpu", "2", "--disk", "10Gi", "--extra", "licence=3", "--zone", "z", "--rack", "r",
         "--label", "disk=ssd", "--taint", "gpu=yes", "--token", "secret")  # fmt: skip
    await until(lambda: agent.hellos, "a hello")
    hello = agent.hellos[0]
    assert hello.token == "secret"
    assert hello.machine.name == "m"
    assert hello.machine.capacity.vector() == (2_000, 1_024, 2, 10_240, 0)
    assert hello.machine.capacity.extra == {"licence": 3}
    assert (hello.machine.zone, hello.machine.rack) == ("z", "r")
    assert hello.machine.labels == {"disk": "ssd"}
    assert [(taint.key, taint.value) for taint in hello.machine.taints] == [("gpu", "yes")]


async def test_an_agent_can_be_dialled_over_tcp(agent, keep):
    async with agent.serving_tcp() as port:
        keep("--agent", f"http://127.0.0.1:{port}")
        await agent.leased()
        assert (await agent.ending(await agent.start("true"))).ending.success


async def test_a_message_that_does_not_fit_is_counted_and_changes_nothing(agent, keep):
    keeper = keep()
    await agent.leased()
    for text in ("{", '{"kind": "dance"}', '{"kind": "stop"}', "[]"):
        await agent.socket.send(text)
    assert (await agent.ending(await agent.start("true"))).ending.success
    counts = [line["count"] for line in keeper.lines() if line["event"] == "misfit"]
    assert counts == [1, 2, 3, 4]


async def test_starting_true_costs_a_keeper_little(agent: FakeAgent, keep):
    """Also the measure: prints CPU milliseconds of the keeper for each attempt of /bin/true."""
    keeper = keep()
    await agent.leased()
    rounds, each = 5, 60
    costs = []
    for turn in range(rounds):
        before = cpu_ms(keeper.pid)
        attempts = [await agent.start("/bin/true", name=f"t{turn}-{n}") for n in range(each)]
        for attempt in attempts:
            await agent.ending(attempt)
        costs.append((cpu_ms(keeper.pid) - before) / each)
    costs.sort()
    print(f"keeper CPU per /bin/true: {costs[rounds // 2]:.2f} ms (of {costs})")
    assert costs[rounds // 2] <= 5


def cpu_ms(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) * 1_000 / os.sysconf("SC_CLK_TCK")
