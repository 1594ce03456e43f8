"""Runs all of Drystone on this machine: starts, watches, restarts, stops its processes in order."""

import asyncio
import os
import shlex
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import httpx

from drystone.stack.child import Child
from drystone.stack.folder import ChildProcess, UpState, forget_state, write_state
from drystone.stack.leftovers import clear_leftovers, leftovers
from drystone.stack.plan import LOOPBACK, Plan, check_ports

READY_S_MAX = 60.0
PORT_S_MAX = 30.0
POLL_S = 0.1
EARLY_DEATHS_MAX = 5
"""Before everything was ready once; afterwards a process may die much more often."""
LOG_CHECK_S = 10.0
STOP_ORDER = ("keeper", "agent", "api", "worker", "temporal")
STOP_S = {"keeper": 90.0, "agent": 20.0, "api": 10.0, "worker": 15.0, "temporal": 15.0}
"""The keeper gives running attempts their grace first; whatever is late is killed."""


class NotReadyError(Exception):
    """The stack did not come up; the text says which part and shows its last lines."""


@dataclass
class Supervisor:
    """One run of `up`."""

    plan: Plan
    say: Callable[[str], None]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    children: dict[str, Child] = field(default_factory=dict)
    ready: bool = False

    async def run(self) -> None:
        """Until a signal; raises NotReadyError or DyingError when it cannot go on."""
        self._listen_to_signals()
        (self.plan.folder / "logs").mkdir(exist_ok=True)
        found = leftovers(self.plan.folder)
        self._write(found)  # Whoever asks meanwhile, and whoever follows if we are killed here.
        if not await clear_leftovers(found, self.say, self.over):
            return
        check_ports(self.plan.wish)
        for name, command in self.plan.commands.items():
            self.children[name] = Child(
                name, command, self.plan.environment, self.plan.folder, self.say
            )
        keepers: list[asyncio.Task[None]] = []
        try:
            await self._come_up(keepers)
            await self._watch(keepers)
        finally:
            await self._stop(keepers)

    async def _come_up(self, keepers: list[asyncio.Task[None]]) -> None:
        began = time.monotonic()
        self.say(f"starting {', '.join(self.children)} on {self.plan.folder}")
        for name, child in self.children.items():
            keepers.append(asyncio.create_task(child.keep(self._write_alive)))
            if name == "temporal":
                port = int(self.plan.settings.temporal_address.rpartition(":")[2])
                await self._until(partial(_listens, port), "Temporal", PORT_S_MAX, keepers)
        async with httpx.AsyncClient(base_url=self.plan.settings.api_url, timeout=5) as http:
            await self._until(partial(self._answers, http), "Drystone", READY_S_MAX, keepers)
        if self.over.is_set():
            return
        self.ready = True
        self._write_alive()
        settings, took_s = self.plan.settings, time.monotonic() - began
        down = f"drystone down --data {shlex.quote(str(self.plan.folder))}"
        self.say(f"Drystone is up ({took_s:.1f} s). Stop it with Ctrl-C or `{down}`.")
        self.say(f"  API      {settings.api_url}  (documentation at /docs)")
        self.say(f"  Web UI   {self.plan.ui_url}")
        self.say(f"  Temporal {settings.temporal_address}")
        self.say(f"  data     {self.plan.folder}  (machine {settings.machine})")

    async def _until(
        self,
        holds: Callable[[], Awaitable[bool]],
        what: str,
        seconds: float,
        keepers: list[asyncio.Task[None]],
    ) -> None:
        deadline = time.monotonic() + seconds
        while not self.over.is_set():
            if await holds():
                return
            _raise_first(keepers)
            self._give_up_on_the_dying()
            if time.monotonic() > deadline:
                raise NotReadyError(
                    f"{what} is not ready after {seconds:.0f} s\n{self._last_words()}"
                )
            await asyncio.sleep(POLL_S)

    async def _answers(self, http: httpx.AsyncClient) -> bool:
        """The API can work, and the machine has been registered through agent and worker."""
        try:
            if (await http.get("/readyz")).status_code != 200:
                return False
            answer = await http.get(f"/v1/machines?cluster={self.plan.settings.cluster}")
        except httpx.HTTPError:
            return False
        return answer.is_success and any(
            machine["name"] == self.plan.settings.machine and machine["reachable"]
            for machine in answer.json()["items"]
        )

    async def _watch(self, keepers: list[asyncio.Task[None]]) -> None:
        over = asyncio.create_task(self.over.wait())
        while not self.over.is_set():
            await asyncio.wait(
                [over, *keepers], timeout=LOG_CHECK_S, return_when=asyncio.FIRST_COMPLETED
            )
            _raise_first(keepers)
            for child in self.children.values():
                child.bound_log()
        await over

    async def _stop(self, keepers: list[asyncio.Task[None]]) -> None:
        self.say("stopping: running attempts first, each with its grace (Ctrl-C again to kill)")
        for name in STOP_ORDER:
            if name in self.children:
                await self.children[name].stop(STOP_S[name], self.hurry)
        for task in keepers:
            task.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        forget_state(self.plan.folder)
        self.say("stopped")

    def _write_alive(self) -> None:
        alive = {name: c.known for name, c in self.children.items()}
        self._write({name: known for name, known in alive.items() if known})

    def _write(self, children: Mapping[str, ChildProcess]) -> None:
        write_state(
            self.plan.folder,
            UpState(
                pid=os.getpid(),
                ready=self.ready,
                api_url=self.plan.settings.api_url,
                ui_url=self.plan.ui_url,
                temporal_address=self.plan.settings.temporal_address,
                machine=self.plan.settings.machine,
                children=dict(children),
            ),
        )

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        (self.hurry if self.over.is_set() else self.over).set()

    def _give_up_on_the_dying(self) -> None:
        for child in self.children.values():
            if len(child.deaths) >= EARLY_DEATHS_MAX:
                raise NotReadyError(
                    f"{child.name} does not stay up\n--- {child.log}\n{child.last_lines()}"
                )

    def _last_words(self) -> str:
        told = [(c.log, c.last_lines(5)) for c in self.children.values()]
        return "\n".join(f"--- {log}\n{lines}" for log, lines in told if lines)


def _raise_first(keepers: list[asyncio.Task[None]]) -> None:
    for task in keepers:
        if task.done() and not task.cancelled() and (error := task.exception()):
            raise error


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    return True
