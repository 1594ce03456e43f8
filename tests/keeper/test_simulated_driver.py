"""Attempts that only pretend, and many simulated machines in one process."""

import pytest

from domain.attempt import EndKind, StopCause
from domain.task import OnLoss, Simulated
from keeper.fleet import read_machines
from tests.keeper.fake_agent import until


async def test_a_simulated_attempt_lasts_and_ends_as_its_specification_says(agent, keep):
    keep("--simulated")
    await agent.leased()
    attempt = await agent.start("anything", simulated=Simulated(duration_ms=300, exit_code=7))
    ended = await agent.ending(attempt)
    assert (ended.ending.kind, ended.ending.exit_code) == (EndKind.EXITED, 7)
    assert 300 <= ended.ending.usage.wall_ms < 2_000


async def test_a_simulated_attempt_stops_at_once(agent, keep):
    keep("--simulated")
    await agent.leased()
    attempt = await agent.start("anything", simulated=Simulated(duration_ms=10**9))
    await agent.running(attempt)
    await agent.stop(attempt, grace_s=1_000)
    ended = await agent.ending(attempt)
    assert (ended.ending.kind, ended.ending.exit_code) == (EndKind.STOPPED, 143)


async def test_frozen_time_does_not_count_for_a_simulated_attempt(agent, keep):
    agent.lease_ms = 900
    keep(
        "--simulated", DRYSTONE_LEASE_S="0.9", DRYSTONE_SUSPECT_S="0.8", DRYSTONE_HEARTBEAT_S="0.2"
    )
    await agent.leased()
    agent.answers = False
    plain = await agent.start("x", name="plain", simulated=Simulated(duration_ms=2_000))
    waiting = await agent.start(
        "x", name="waiting", on_loss=OnLoss.WAIT, simulated=Simulated(duration_ms=2_000)
    )
    await agent.running(plain)
    await agent.ending(waiting)
    assert plain not in agent.ended
    agent.epoch, agent.answers, agent.lease_ms = 2, True, 60_000
    ended = await agent.ending(plain)
    assert ended.ending.success
    assert ended.ending.usage.wall_ms > 2_300


MACHINES = """name,cpu,memory,gpu,zone,labels,taints,count
big,64,256Gi,8,z1,disk=ssd;tier=1,gpu=yes,
small,500m,1Gi,,z2,,,3
"""


async def test_a_file_of_machines_becomes_a_fleet(agent, keep, tmp_path):
    (tmp_path / "machines.csv").write_text(MACHINES)
    keep("--machines", str(tmp_path / "machines.csv"))
    await until(lambda: len(agent.hellos) == 4, "four hellos")
    assert {hello.machine.name for hello in agent.hellos} == {
        "big",
        "small-1",
        "small-2",
        "small-3",
    }
    assert len({hello.machine.instance for hello in agent.hellos}) == 4


def test_machines_are_read_as_people_write_them(tmp_path):
    path = tmp_path / "machines.csv"
    path.write_text(MACHINES)
    big, small, *_ = read_machines(path)
    assert big.capacity.vector() == (64_000, 262_144, 8, 0, 0)
    assert big.labels == {"disk": "ssd", "tier": "1"}
    assert [(taint.key, taint.value) for taint in big.taints] == [("gpu", "yes")]
    assert small.capacity.vector() == (500, 1_024, 0, 0, 0)
    path.write_text("name,cpu,memory\nm,many,1Gi\n")
    with pytest.raises(ValueError, match="cpu"):
        read_machines(path)


async def test_a_shutdown_says_that_simulated_attempts_were_stopped(agent, keep):
    keeper = keep("--simulated")
    await agent.leased()
    attempt = await agent.start("x", simulated=Simulated(duration_ms=10**9))
    await agent.running(attempt)
    keeper.process.terminate()
    assert (await agent.ending(attempt)).ending.stop_cause is StopCause.SHUT_DOWN
    await until(lambda: keeper.process.poll() is not None, "it has ended")
    assert keeper.process.returncode == 0
