"""Real agent processes, killed and started again, between a fake keeper and the real server."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from domain.attempt import EndKind
from domain.audit import RollCall
from domain.ids import WORKFLOW_QUEUE, cluster_workflow_id, task_workflow_id
from domain.protocol import (
    Delivery,
    Ended,
    LeaseAnswer,
    LiftMachines,
    Order,
    Orphan,
    read_cluster_envelope,
    read_task_envelope,
)
from tests.agent.bench import a_stop, an_offer
from tests.agent.fake_keeper import FakeKeeper, until, until_true
from tests.agent.stubs import ClusterStub, TaskStub

EXIT_S_MAX = 30
pytestmark = pytest.mark.e2e


class Site:
    """One cluster's agent process, its keeper and its workflows, named after the test."""

    def __init__(self, client: Client, folder: Path, cluster: str) -> None:
        self.client, self.folder, self.cluster = client, folder, cluster
        self.keeper = FakeKeeper()
        self.process: subprocess.Popen[bytes] | None = None

    def command(self, *more: str) -> list[str]:
        target = self.client.service_client.config.target_host
        named = ["--cluster", self.cluster, "--folder", str(self.folder), "--temporal", target]
        return [sys.executable, "-P", "-m", "agent", *named, *more]

    async def start(self, *more: str) -> None:
        """The agent; returns when keepers can reach it."""
        (self.folder / "agent.sock").unlink(missing_ok=True)
        self.process = await asyncio.to_thread(self._spawn, *more)
        await until((self.folder / "agent.sock").exists, "the agent listens")

    def _spawn(self, *more: str) -> "subprocess.Popen[bytes]":
        with (self.folder.parent / "agent.log").open("ab") as log:
            environment = {**os.environ, "DRYSTONE_HEARTBEAT_S": "0.5"}
            return subprocess.Popen(self.command(*more), stdout=log, stderr=log, env=environment)

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, EXIT_S_MAX)

    async def join(self) -> None:
        """The keeper says hello and is granted its lease."""
        await self.keeper.connect(self.folder / "agent.sock")

        async def leased() -> bool:
            await self.keeper.ask()
            return self.keeper.granted

        await until_true(leased, "the keeper has a lease")

    async def start_task(self, name: str) -> str:
        key = f"{self.cluster}/{name}"
        await self.client.start_workflow(
            "TaskWorkflow", id=task_workflow_id(key), task_queue=WORKFLOW_QUEUE
        )
        return key

    async def order(self, *orders: Order) -> None:
        delivery = Delivery(cluster=self.cluster, epoch=0, orders=orders)
        await self._cluster.signal(ClusterStub.order, delivery)

    async def answers(self) -> list[str]:
        """The words of all orders so far."""
        words: list[str] = []
        for answer in await self._cluster.query(ClusterStub.answers):
            words += [one["answer"] for one in answer.get("answers", ())]
        return words

    async def told(self) -> list[Any]:
        raw = await self._cluster.query(ClusterStub.told)
        envelopes = [read_cluster_envelope(one) for one in raw]
        return [envelope.message for envelope in envelopes if envelope is not None]

    async def endings(self, key: str) -> list[EndKind]:
        handle = self.client.get_workflow_handle(task_workflow_id(key))
        envelopes = [read_task_envelope(raw) for raw in await handle.query(TaskStub.reports)]
        messages = [envelope.message for envelope in envelopes if envelope is not None]
        return [message.ending.kind for message in messages if isinstance(message, Ended)]

    async def ended(self, key: str, kind: EndKind) -> None:
        async def there() -> bool:
            return kind in await self.endings(key)

        await until_true(there, f"{key} is reported {kind}")

    @property
    def _cluster(self):
        return self.client.get_workflow_handle(cluster_workflow_id(self.cluster))


@pytest_asyncio.fixture
async def site(
    dev_server_env: WorkflowEnvironment, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Site]:
    client = dev_server_env.client
    cluster = request.node.name.removeprefix("test_")[:60].strip("_")
    there = Site(client, tmp_path / "agent", cluster)
    async with Worker(client, task_queue=WORKFLOW_QUEUE, workflows=[TaskStub, ClusterStub]):
        await there.start()
        yield there
        if there.process is not None and there.process.poll() is None:
            await there.kill()


def attempt(key: str) -> str:
    return f"{key}#1"


async def test_an_attempt_from_offer_to_report(site: Site) -> None:
    key = await site.start_task("t")
    await site.join()
    await site.order(an_offer(key))
    await until(lambda: attempt(key) in site.keeper.live, "it is started")
    assert await site.answers() == ["admitted"]
    await site.keeper.end(attempt(key))
    await site.ended(key, EndKind.EXITED)
    await until(lambda: attempt(key) in site.keeper.forgotten, "the keeper may forget it")


async def test_a_killed_agent_starts_nothing_twice_and_reports_what_ended(site: Site) -> None:
    goes_on, ends = await site.start_task("goes-on"), await site.start_task("ends")
    await site.join()
    await site.order(an_offer(goes_on), an_offer(ends))
    await until(lambda: len(site.keeper.live) == 2, "both run")
    await site.kill()
    await site.keeper.hang_up()
    await site.keeper.end(attempt(ends))
    await site.start()
    await site.join()
    await site.ended(ends, EndKind.EXITED)
    await site.order(an_offer(goes_on), an_offer(ends))

    async def answered() -> bool:
        return await site.answers() == ["admitted"] * 4

    await until_true(answered, "the doubles are answered")
    await site.keeper.end(attempt(goes_on))
    await site.ended(goes_on, EndKind.EXITED)
    assert dict(site.keeper.starts) == {attempt(goes_on): 1, attempt(ends): 1}
    assert await site.endings(ends) == [EndKind.EXITED]


async def test_a_stop_that_came_before_a_kill_still_stops(site: Site) -> None:
    key = await site.start_task("t")
    await site.join()
    await site.order(an_offer(key))
    await until(lambda: attempt(key) in site.keeper.live, "it runs")
    await site.keeper.hang_up()
    await site.order(a_stop(key))

    async def taken() -> bool:
        return await site.answers() == ["admitted", "taken"]

    await until_true(taken, "the stop is journalled")
    await site.kill()
    await site.start()
    await site.join()
    await site.ended(key, EndKind.STOPPED)


async def test_a_keeper_that_died_with_its_attempts_has_lost_them(site: Site) -> None:
    key = await site.start_task("t")
    await site.join()
    await site.order(an_offer(key))
    await until(lambda: attempt(key) in site.keeper.live, "it runs")
    await site.keeper.hang_up()
    site.keeper = FakeKeeper(instance="k2")
    await site.join()
    await site.ended(key, EndKind.LOST)


async def test_an_attempt_without_a_workflow_is_handed_to_the_cluster(site: Site) -> None:
    key = f"{site.cluster}/nobody"
    await site.join()
    await site.order(an_offer(key))
    await until(lambda: attempt(key) in site.keeper.live, "it runs")
    await site.keeper.end(attempt(key))

    async def handed_over() -> bool:
        orphans = [m for m in await site.told() if isinstance(m, Orphan)]
        return [(o.key, o.number) for o in orphans] == [(key, 1)]

    await until_true(handed_over, "the cluster's workflow is told")


async def test_it_says_what_it_holds_and_lifts_its_brake_when_asked(site: Site) -> None:
    key = await site.start_task("t")
    await site.join()
    await site.order(an_offer(key))
    await until(lambda: attempt(key) in site.keeper.live, "it is started")
    cluster = site.client.get_workflow_handle(cluster_workflow_id(site.cluster))
    await cluster.signal(ClusterStub.roll, RollCall(cluster=site.cluster, machines=("m1", "m9")))
    await cluster.signal(ClusterStub.lift, LiftMachines(cluster=site.cluster, by="ann"))

    async def said() -> bool:
        answers = await cluster.query(ClusterStub.answers)
        rolls = [answer["rolls"] for answer in answers if "rolls" in answer]
        lifts = [answer["lifted"] for answer in answers if "lifted" in answer]
        return (rolls, lifts) == ([[{"machine": "m1", "attempts": [attempt(key)]}]], [False])

    await until_true(said, "the list of m1, and that no brake held")
    await site.keeper.end(attempt(key))
    await site.ended(key, EndKind.EXITED)


async def test_machines_are_told_with_the_heartbeats(site: Site) -> None:
    await site.join()

    async def reachable() -> bool:
        states = [s for m in await site.told() if m.kind == "heartbeat" for s in m.states]
        return bool(states) and states[-1].reachable

    await until_true(reachable, "the machine is reported as reachable")
    await site.keeper.hang_up()

    async def away() -> bool:
        return not await reachable()

    await until_true(away, "the machine is reported as away")


async def test_sigterm_ends_an_agent_and_not_its_attempts(site: Site) -> None:
    key = await site.start_task("t")
    await site.join()
    await site.order(an_offer(key))
    await until(lambda: attempt(key) in site.keeper.live, "it runs")
    assert await site.kill(signal.SIGTERM) == 0
    assert attempt(key) in site.keeper.live
    assert "stop" not in site.keeper.kinds()
    assert await site.endings(key) == []


async def test_keepers_are_served_while_temporal_is_away(site: Site) -> None:
    await site.kill()
    await site.start("--temporal", "127.0.0.1:1")
    await site.keeper.connect(site.folder / "agent.sock")
    await until(lambda: "lease_answer" in site.keeper.kinds(), "the question is answered")
    answer = site.keeper.received[-1]
    assert isinstance(answer, LeaseAnswer)
    assert answer.remaining_ms == 0
    assert await site.kill(signal.SIGTERM) == 0


async def test_a_second_agent_on_a_folder_is_refused(site: Site) -> None:
    done = await _run(site.command())
    assert done.returncode == 1
    assert b"another agent" in done.stderr
    assert str(site.folder).encode() in done.stderr


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["--cluster", "not/legal"], 2, b"--cluster"),
        (["--listen", "nowhere"], 2, b"NAME:PORT"),
        (["--folder", "{file}/below"], 1, b"cannot be used"),
        (["--simulate", "{folder}/missing.csv"], 1, b"missing.csv"),
    ],
)
async def test_wrong_options_are_named(
    tmp_path: Path, words: list[str], status: int, text: bytes
) -> None:
    (tmp_path / "file").write_text("in the way")
    places = {"file": tmp_path / "file", "folder": tmp_path}
    given = ["--folder", str(tmp_path / "agent"), *(word.format(**places) for word in words)]
    done = await _run([sys.executable, "-P", "-m", "agent", *given])
    assert done.returncode == status
    assert text in done.stderr


async def _run(command: list[str]) -> "subprocess.CompletedProcess[bytes]":
    def run() -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(command, capture_output=True, timeout=EXIT_S_MAX, check=False)

    return await asyncio.to_thread(run)
