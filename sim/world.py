"""One world: scheduler, agents, keepers and trees on one clock, from one seed."""

from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, TextIO

from sqlalchemy import Engine

from agent.admission import Terms
from domain.cluster import ClusterState
from domain.ids import cluster_workflow_id, placement_workflow_id, task_workflow_id
from domain.protocol import (
    Cancel,
    ClusterEnvelope,
    CordonMachines,
    DrainMachines,
    KeeperHello,
    TaskEnvelope,
)
from domain.stages import TaskState
from domain.supervision import LeaseTerms
from domain.task import TaskSpec, body_digest
from sim.agents import AgentSettings, AgentShell
from sim.clock import SECOND, Clock
from sim.durable import Temporal
from sim.entities import Bell, ClusterKind, PlacementKind, Rung, TaskKind
from sim.faults import Faults
from sim.keepers import KeeperShell
from sim.network import Network
from sim.process import Process
from sim.scheduler import Scheduler
from sim.sockets import Socket
from sim.trace import Trace
from sim.trees import Truth
from sim.workload import Workload
from store.session import create_schema, open_engine, transaction
from store.tables import METADATA


def new_ledger() -> Engine:
    """A ledger in memory; worlds may use it one after the other."""
    engine = open_engine("sqlite://")
    create_schema(engine)
    return engine


def empty_ledger(engine: Engine) -> Engine:
    """As it was when it was new; the statements that it has compiled stay."""
    with transaction(engine) as connection:
        for table in reversed(METADATA.sorted_tables):
            connection.execute(table.delete())
    return engine


def _terms(lease_s: int) -> LeaseTerms:
    """The proportions of the defaults."""
    return LeaseTerms(lease_s=lease_s, heartbeat_s=lease_s / 5, suspect_s=lease_s / 2)


def _agent_terms(terms: LeaseTerms) -> Terms:
    lease_ms = int(terms.lease_s * 1_000)
    suspect_ms = int(terms.suspect_s * 1_000)
    return Terms(lease_ms=lease_ms, keeper_lease_ms=lease_ms, suspect_ms=suspect_ms)


class World:
    """Everything there is, and what people and faults can do to it."""

    def __init__(
        self,
        seed: str,
        work: Workload,
        faults: Faults,
        engine: Engine,
        out: TextIO | None = None,
    ) -> None:
        """`engine`: an empty ledger (see `empty_ledger`)."""
        self.seed = seed
        self.workload = work
        self.clock = Clock()
        self.trace = Trace(self.clock, out)
        self.network = Network(self.clock, self.trace, self._rng("network"))
        self.truth = Truth(self.clock, self.trace, work.plan)
        self.engine = engine
        self.worker = Process("worker", self.clock, self.trace, self._rng("worker"))
        self.temporal = Temporal(self.clock, self.trace, self._rng("temporal"), self.worker)
        self.scheduler = Scheduler(self.clock, self.trace, self.engine, _terms(work.lease_s))
        self.task_kind = TaskKind(self.scheduler)
        self.cluster_kind = ClusterKind(self.scheduler, self.temporal)
        self.placement_kind = PlacementKind(self.scheduler, self.temporal)
        self.scheduler.ring = self._ring
        self.scheduler.tell_task = self.tell_task
        self.scheduler.tell_cluster = self.tell_cluster
        self.agents = {name: self._agent(name) for name in work.machines}
        self.cluster_kind.agents = self.agents
        self.keepers = [
            self._keeper(name, machine)
            for name, machines in work.machines.items()
            for machine in machines
        ]
        self.gone: set[str] = set()
        """Tasks whose workflow was terminated."""
        self.reset: set[str] = set()
        self.cancelled: set[str] = set()
        self.drained: set[str] = set()
        """Machines that were, at some time."""
        self.faults = faults

    def begin(self) -> None:
        """Start every process, and let the tasks and faults come."""
        for agent in self.agents.values():
            agent.begin()
        for keeper in self.keepers:
            keeper.begin()
        for arrival in self.workload.arrivals:
            self.clock.after(arrival.at_us, partial(self.submit, arrival.spec))
        self._switch_on(self.faults.ongoing)

    def spec(self, key: str) -> TaskSpec:
        """What this task asked for."""
        return next(a.spec for a in self.workload.arrivals if a.spec.key == key)

    # --- people ---------------------------------------------------------------------------------

    def submit(self, spec: TaskSpec) -> None:
        """As the API does it; submitting again is harmless."""
        state = TaskState(spec=spec, digest=body_digest(spec))
        self.temporal.start(task_workflow_id(spec.key), self.task_kind, state)

    def cancel(self, key: str, *, abandon: bool) -> None:
        """A person's wish."""
        self.cancelled.add(key)
        self.trace.line("person", "cancel", f"{key} abandon={abandon}")
        letter = TaskEnvelope(message=Cancel(abandon=abandon, by="ann"))
        self.tell_task(key, letter.model_dump(mode="json"))

    def cordon(self, machine: str, *, cordoned: bool) -> None:
        """An operator's wish."""
        wish = CordonMachines(machines=(machine,), cordoned=cordoned, by="ops")
        letter = ClusterEnvelope(message=wish)
        self.tell_cluster(machine.partition("m")[0], letter.model_dump(mode="json"))

    def drain(self, machine: str, *, drained: bool, deadline_s: float | None = None) -> None:
        """An operator's wish."""
        self.trace.line("person", "drain" if drained else "undrain", machine)
        deadline = None
        if deadline_s is not None:
            deadline = self.clock.instant + timedelta(seconds=deadline_s)
        wish = DrainMachines(machines=(machine,), drained=drained, deadline=deadline, by="ops")
        letter = ClusterEnvelope(message=wish)
        self.tell_cluster(machine.partition("m")[0], letter.model_dump(mode="json"))
        self.drained.add(machine)

    def tell_task(self, key: str, raw: Any) -> bool:
        """A signal to a TaskWorkflow; False is NOT_FOUND."""
        return self.temporal.signal(task_workflow_id(key), raw)

    def tell_cluster(self, name: str, raw: Any) -> bool:
        """A signal that starts the ClusterWorkflow where it does not run."""
        workflow = cluster_workflow_id(name)
        self.temporal.start(workflow, self.cluster_kind, ClusterState(cluster=name))
        return self.temporal.signal(workflow, raw)

    # --- healing --------------------------------------------------------------------------------

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self.trace.line("world", "heal")
        self._switch_on(frozenset())
        for source, target in sorted(self.network.blocked):
            self.network.heal(source, target)
        self.restart_worker()
        for agent in self.agents.values():
            self.restart(agent)
        for keeper in self.keepers:
            self.restart(keeper)
            self.cordon(keeper.machine.name, cordoned=False)
            if keeper.machine.name in self.drained:
                self.drain(keeper.machine.name, drained=False)

    def restart(self, shell: AgentShell | KeeperShell) -> None:
        """Begin a new life if it has none."""
        if not shell.process.up:
            shell.process.restart()
            shell.begin()

    def restart_worker(self) -> None:
        """The same for the worker."""
        if not self.worker.up:
            self.worker.restart()
            self.temporal.worker_is_back()

    # --- building -------------------------------------------------------------------------------

    def _rng(self, of: str) -> Random:
        return Random(f"{self.seed}/{of}")

    def _switch_on(self, ongoing: frozenset[str]) -> None:
        temporal = self.temporal
        self.worker.crash_per_step = 0.004 if "crash_per_step" in ongoing else 0.0
        self.network.slow = 0.03 if "slow_network" in ongoing else 0.0
        temporal.repeat_tasks = 0.1 if "repeat_tasks" in ongoing else 0.0
        temporal.repeat_activities = 0.1 if "repeat_activities" in ongoing else 0.0
        temporal.repeat_signals = 0.1 if "repeat_signals" in ongoing else 0.0
        temporal.late_timers = 0.1 if "late_timers" in ongoing else 0.0
        for agent in self.agents.values():
            agent.crash_per_effect = 0.005 if "crash_per_effect" in ongoing else 0.0
            agent.late_orders = 0.15 if "late_orders" in ongoing else 0.0
        for keeper in self.keepers:
            keeper.launch_fails = 0.1 if "launch_fails" in ongoing else 0.0

    def _agent(self, name: str) -> AgentShell:
        process = Process(f"agent-{name}", self.clock, self.trace, self._rng(f"agent-{name}"))
        return AgentShell(
            process,
            self.network,
            process.rng,
            AgentSettings(
                name, _agent_terms(self.scheduler.terms), self.scheduler.terms.heartbeat_s
            ),
            self.tell_task,
            self.tell_cluster,
        )

    def _keeper(self, cluster: str, machine: Any) -> KeeperShell:
        name = f"keeper-{machine.name}"
        process = Process(name, self.clock, self.trace, self._rng(name))
        dial = partial(self._dial, self.agents[cluster])
        question_us = self.workload.lease_s * SECOND // 6
        return KeeperShell(process, machine, dial, self.truth, question_us)

    def _dial(self, agent: AgentShell, keeper: KeeperShell, hello: KeeperHello) -> Socket | None:
        ends = (keeper.process.name, agent.process.name)
        ways = {ends, ends[::-1]}
        if not agent.process.up or ways & self.network.blocked:
            return None
        socket = Socket(0, keeper, agent, self.clock, self.network, keeper.process.rng)
        socket.to_agent(hello)
        return socket

    def _ring(self, partition: int) -> None:
        workflow = placement_workflow_id(partition)
        self.temporal.start(workflow, self.placement_kind, Bell())
        self.temporal.signal(workflow, Rung())
