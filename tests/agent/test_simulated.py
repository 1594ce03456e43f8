"""Simulated machines: the file, and what the players of its keepers do."""

import asyncio
import gzip
from pathlib import Path

import pytest

from agent.admission import Connected, Said
from agent.simulated import MachinesFileError, SimulatedFleet, plan, read_machines
from agent.state import What
from domain.attempt import EndKind, StopCause
from domain.constraint import Taint
from domain.protocol import (
    AttemptEnded,
    AttemptStarted,
    Forget,
    KeeperGrant,
    LeaseQuestion,
    StartAttempt,
    StopAttempt,
)
from domain.reasons import Reason
from domain.resources import Resources
from domain.task import Simulated
from tests.agent.bench import KEY, a_machine, a_spec
from tests.agent.fake_keeper import until

ATTEMPT = f"{KEY}#1"

# --- the file -------------------------------------------------------------------------------------


def test_a_row_becomes_a_machine(tmp_path: Path) -> None:
    (machine,) = _read(
        tmp_path,
        "id,zone,rack,cpu_milli,memory_mib,gpu,gpu_model,labels,taints,reserved_cpu_milli",
        "m1,z1,r1,8000,1024,2,A100,disk=ssd;kind=big,only=gpu:NoSchedule,500",
    )
    assert machine.capacity == Resources(cpu_milli=7_500, memory_mib=1_024, gpu=2)
    assert (machine.zone, machine.rack) == ("z1", "r1")
    assert machine.labels == {"disk": "ssd", "kind": "big", "gpu_model": "A100"}
    assert machine.taints == (Taint(key="only", value="gpu"),)


def test_only_the_rows_of_this_cluster_are_taken_and_no_cordoned_ones(tmp_path: Path) -> None:
    machines = _read(tmp_path, "id,cluster,cordoned", "m1,c1,0", "m2,c2,0", "m3,,0", "m4,c1,1")
    assert [machine.name for machine in machines] == ["m1", "m3"]


def test_a_packed_file_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "machines.csv.gz"
    path.write_bytes(gzip.compress(b"id\nm1\n"))
    assert [machine.name for machine in read_machines(path, "c1", "i")] == ["m1"]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("id,colour", "m1,red"), "unknown columns: colour"),
        (("zone", "z1"), "no id"),
        (("id,cpu_milli", "m1,many"), "line 2"),
        (("id", "not/legal"), "line 2"),
        (("id", "m1", "m1"), "1 machines have the id of another"),
        (("id",), "no machine of cluster c1"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(
    tmp_path: Path, lines: tuple[str, ...], text: str
) -> None:
    with pytest.raises(MachinesFileError, match=text):
        _read(tmp_path, *lines)


def _read(folder: Path, *lines: str):
    path = folder / "machines.csv"
    path.write_text("\n".join(lines) + "\n")
    return read_machines(path, "c1", "i1")


# --- the players ----------------------------------------------------------------------------------


def test_an_attempt_ends_as_its_specification_says() -> None:
    spec = a_spec().model_copy(update={"simulated": Simulated(duration_ms=5_000, exit_code=3)})
    lasts_ms, ending = plan(spec)
    assert (lasts_ms, ending.exit_code, ending.reason) == (5_000, 3, Reason.NONZERO_EXIT)
    lasts_ms, ending = plan(spec.model_copy(update={"run_timeout_s": 2}))
    assert (lasts_ms, ending.stop_cause) == (2_000, StopCause.RUN_TIMEOUT)
    assert plan(a_spec())[0] == 1_000


class Fleet:
    """One simulated machine and what it says."""

    def __init__(self) -> None:
        self.events: list[What] = []
        self.fleet = SimulatedFleet([a_machine()], 60, self.events.append)

    def start(self, duration_ms: int) -> None:
        spec = a_spec().model_copy(update={"simulated": Simulated(duration_ms=duration_ms)})
        start = StartAttempt(attempt=ATTEMPT, key=KEY, number=1, cluster="c1", spec=spec)
        self.fleet.send("m1", start)

    def grant(self) -> None:
        grant = KeeperGrant(question=1, epoch=1, remaining_ms=60_000, closed=())
        self.fleet.send("m1", grant)

    def said(self) -> list[object]:
        return [event.message for event in self.events if isinstance(event, Said)]


async def test_machines_say_hello_and_ask() -> None:
    there = Fleet()
    running = asyncio.create_task(there.fleet.run())
    await until(lambda: len(there.events) == 2, "hello and question")
    running.cancel()
    assert isinstance(there.events[0], Connected)
    assert isinstance(there.said()[0], LeaseQuestion)


async def test_an_attempt_runs_its_time() -> None:
    there = Fleet()
    there.grant()
    there.start(20)
    await until(lambda: len(there.said()) == 2, "started and ended")
    started, ended = there.said()
    assert isinstance(started, AttemptStarted)
    assert isinstance(ended, AttemptEnded)
    assert (ended.ending.kind, ended.ending.exit_code) == (EndKind.EXITED, 0)
    there.start(20)
    assert len(there.said()) == 2


async def test_a_stop_ends_it_at_once_and_only_once() -> None:
    there = Fleet()
    there.grant()
    there.start(60_000)
    stop = StopAttempt(attempt=ATTEMPT, cause=StopCause.DRAIN, grace_s=30)
    there.fleet.send("m1", stop)
    there.fleet.send("m1", stop)
    (_, ended) = there.said()
    assert isinstance(ended, AttemptEnded)
    assert ended.ending.stop_cause is StopCause.DRAIN
    there.fleet.send("m1", Forget(attempts=(ATTEMPT,)))


async def test_nothing_starts_without_a_lease() -> None:
    there = Fleet()
    there.start(0)
    assert there.said() == []
