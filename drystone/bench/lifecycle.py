"""`drystone bench lifecycle`: a whole task beside the least that a durable task can cost.

The two sides alternate on the same server, with the same client and worker processes. The floor is
a bare workflow whose one signal is sent after its first workflow task has run.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from temporalio.client import Client, WorkflowHandle

from domain.ids import WORKFLOW_QUEUE, task_workflow_id
from drystone.bench.crowd import add_crowd
from drystone.bench.embedded import embedded
from drystone.bench.history import billable_actions
from drystone.bench.measure import cpu_seconds, middle, spread
from drystone.stack.folder import UpState
from runtime.settings import Settings
from runtime.temporal import connect

ROUNDS = 5
WARM_UP_TASKS = 10
IDLE_TASKS = 50
LOADED_S = 20
TEAM = "bench"
FLOOR_EVENTS = 9
# The floor's first workflow task must have run before its signal comes. Both sides are looked at
# in the same way, so that asking costs them the same.
LOOK_AFTER_S = 0.1
LOOKS_MAX = 600
FLOOR_FIRST_EVENTS = 4
SAMPLED_HISTORIES = 20
ROLES = ("server", "worker", "agent", "keeper", "api")


@dataclass
class Side:
    """What one of the two sides used in each round."""

    rates: list[float] = field(default_factory=list)
    cpu_ms: dict[str, list[float]] = field(default_factory=dict)

    def add(self, tasks: int, seconds: float, used: dict[str, float]) -> None:
        """One round."""
        self.rates.append(tasks / seconds)
        for role, cpu_s in used.items():
            self.cpu_ms.setdefault(role, []).append(cpu_s * 1_000 / tasks)

    def total_ms(self, roles: tuple[str, ...]) -> float:
        """CPU of these processes for one task, in the median round."""
        return sum(middle(self.cpu_ms[role], 3) for role in roles)


class Bench:
    """One embedded installation under measurement."""

    def __init__(self, state: UpState, http: httpx.AsyncClient, temporal: Client) -> None:
        self._http, self._temporal = http, temporal
        self._pids = {name: child.pid for name, child in state.children.items()}
        self._pids["server"] = self._pids.pop("temporal")
        self._count = 0
        self._run = f"{time.time_ns():x}"

    def _name(self, side: str) -> str:
        self._count += 1
        return f"{side}-{self._run}-{self._count}"

    async def full(self) -> str:
        """One whole task, submitted over REST; its id once it has ended."""
        name = self._name("task")
        await self.submit(name)
        handle = self.handle(name)
        await handle.describe()
        await handle.result()
        return name

    async def submit(self, name: str) -> float:
        """POST it; the instant just before, in seconds since the epoch."""
        body = {
            "team": TEAM,
            "id": name,
            "command": ["/bin/true"],
            "resources": {"cpu": "10m", "memory": "1Mi"},
            "constraints": {"clusters": ["local"]},
        }
        before = time.time()
        answer = await self._http.post("/v1/tasks", json=body)
        answer.raise_for_status()
        return before

    async def floor(self) -> str:
        """One bare workflow; its id once it has ended."""
        name = self._name("floor")
        handle = await self._temporal.start_workflow(
            "FloorWorkflow", id=name, task_queue=WORKFLOW_QUEUE
        )
        for _ in range(LOOKS_MAX):
            await asyncio.sleep(LOOK_AFTER_S)
            if (await handle.describe()).history_length >= FLOOR_FIRST_EVENTS:
                break
        await handle.signal("tell")
        await handle.result()
        return name

    def handle(self, name: str) -> WorkflowHandle[Any, Any]:
        """The workflow of a task."""
        return self._temporal.get_workflow_handle(task_workflow_id(f"{TEAM}/{name}"))

    async def burst(
        self, side: Side, one: Callable[[], Awaitable[str]], tasks: int, concurrency: int
    ) -> list[str]:
        """So many, never more than `concurrency` at once; their ids."""
        gate = asyncio.Semaphore(concurrency)

        async def gated() -> str:
            async with gate:
                return await one()

        before, start = cpu_seconds(self._pids), time.perf_counter()
        names = await asyncio.gather(*(gated() for _ in range(tasks)))
        seconds, after = time.perf_counter() - start, cpu_seconds(self._pids)
        side.add(tasks, seconds, {role: after[role] - before[role] for role in ROLES})
        return list(names)

    async def histories(self, names: list[str]) -> tuple[list[int], list[int]]:
        """Events and billable actions of some ended tasks."""
        events, actions = [], []
        for name in names[:SAMPLED_HISTORIES]:
            history = await self.handle(name).fetch_history()
            events.append(len(history.events))
            actions.append(billable_actions(history.events))
        return events, actions

    async def check_floor(self, names: list[str]) -> None:
        """A floor workflow must have had its first workflow task before its signal.

        More than nine events are a sticky queue that timed out: no fault of the bench.
        """
        lengths = []
        for name in names[:SAMPLED_HISTORIES]:
            history = await self._temporal.get_workflow_handle(name).fetch_history()
            lengths.append(len(history.events))
        assert min(lengths) == median(lengths) == FLOOR_EVENTS, lengths

    async def delays(self, submitted: dict[str, float]) -> tuple[list[float], list[float]]:
        """Milliseconds from submission to the claim's commit, and to the child's exec."""
        assigned, running = [], []
        for name, before in submitted.items():
            answer = await self._http.get(f"/v1/tasks/{TEAM}/{name}/attempts")
            answer.raise_for_status()
            last = answer.json()["items"][-1]
            assigned.append(1_000 * (_instant(last["placed_at"]) - before))
            running.append(1_000 * (_instant(last["started_at"]) - before))
        return assigned, running

    async def idle(self) -> tuple[list[float], list[float]]:
        """One by one, nothing else going on."""
        submitted = {}
        for count in range(WARM_UP_TASKS + IDLE_TASKS):
            name = self._name("idle")
            before = await self.submit(name)
            await self.handle(name).result()
            if count >= WARM_UP_TASKS:
                submitted[name] = before
        return await self.delays(submitted)

    async def loaded(self, rate: float) -> tuple[list[float], list[float]]:
        """Arriving evenly, whatever the system does."""
        names = [self._name("load") for _ in range(int(rate * LOADED_S))]
        start = time.perf_counter()

        async def at(index: int, name: str) -> tuple[str, float]:
            await asyncio.sleep(max(0.0, start + index / rate - time.perf_counter()))
            before = await self.submit(name)
            await self.handle(name).result()
            return name, before

        return await self.delays(dict(await asyncio.gather(*map(at, range(len(names)), names))))


async def measure(
    state: UpState, tasks: int, concurrency: int, rate: float, say: Callable[[str], None]
) -> dict[str, Any]:
    """All figures of this benchmark; docs/benchmarks.md says what each means."""
    settings = Settings(temporal_address=state.temporal_address)
    limits = httpx.Limits(max_connections=concurrency * 2)
    async with httpx.AsyncClient(base_url=state.api_url, limits=limits, timeout=60) as http:
        bench = Bench(state, http, await connect(settings))
        full, floor = Side(), Side()
        say("idle")
        idle_assigned, idle_running = await bench.idle()
        names: list[str] = []
        for count in range(ROUNDS):
            say(f"round {count + 1} of {ROUNDS}")
            await bench.check_floor(await bench.burst(floor, bench.floor, tasks, concurrency))
            names = await bench.burst(full, bench.full, tasks, concurrency)
        say("loaded")
        loaded_assigned, loaded_running = await bench.loaded(rate)
        events, actions = await bench.histories(names)
    floor_roles = ("server", "worker")
    full_ms, floor_ms = full.total_ms(ROLES), floor.total_ms(floor_roles)
    return {
        "lifecycles_per_s": middle(full.rates, 1),
        "floor_per_s": middle(floor.rates, 1),
        "ratio": round(middle(full.rates, 6) / middle(floor.rates, 6), 3),
        "cpu_ratio": round(floor_ms / full_ms, 3),
        "events_per_task": middle(events, 1),
        "actions_per_task": middle(actions, 1),
        "cpu_ms_per_task": {
            **{role: middle(full.cpu_ms[role]) for role in ROLES},
            **{f"floor_{role}": middle(floor.cpu_ms[role]) for role in floor_roles},
        },
        "idle_submit_to_running_ms": spread(idle_running),
        "loaded_submit_to_running_ms": spread(loaded_running),
        "submit_to_assigned_ms": spread(loaded_assigned or idle_assigned),
    }


def run(
    tasks: int, concurrency: int, rate: float, index_machines: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Start an installation, measure, stop it."""
    with tempfile.TemporaryDirectory(prefix="drystone-bench-") as name:
        folder = Path(name)
        options = ["--cpu=64", "--memory=64Gi", "--machine=m1"]
        with embedded(folder, options) as state:
            add_crowd(folder, index_machines)
            return asyncio.run(measure(state, tasks, concurrency, rate, say))


def _instant(written: str) -> float:
    return datetime.fromisoformat(written).timestamp()
