"""`python -m agent`: reads the options, opens the journal, serves keepers, then joins Temporal.

Exit codes: 0 stopped by a signal (attempts go on under their keepers); 1 an error; 2 wrong options.
"""

import asyncio
import fcntl
import os
import random
import signal
import sys
import uuid
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig
from temporalio.service import RPCError
from temporalio.worker import Worker

from agent.admission import remembered, restored
from agent.engine import Engine, boot_ms
from agent.journal import Journal, JournalDamagedError
from agent.keepers import SOCKET_NAME, KeeperHub, create_app, server, tcp_socket, unix_socket
from agent.link import AgentActivities, Heart, TemporalSignals, orders_of
from agent.outbox import Outbox
from agent.polls import UPDATES_MAX
from agent.settings import Options, read_options
from agent.simulated import MachinesFileError, SimulatedFleet, read_machines
from runtime.telemetry import logger, set_up_logging
from runtime.temporal import connect

FLUSH_S_MAX = 5.0
"""How long the last reports may take when the agent ends; the journal has them in any case."""
CONNECT_AGAIN_S = 1.0


class FolderError(Exception):
    """The folder cannot be used."""


def main(words: Sequence[str]) -> int:
    """Run until told to stop; the exit status."""
    options = read_options(words, os.environ)
    set_up_logging(options.runtime, "agent", cluster=options.runtime.cluster)
    try:
        lock = _occupy(options.folder)
        try:
            asyncio.run(_Agent(options).run())
        finally:
            os.close(lock)
    except (FolderError, JournalDamagedError, MachinesFileError, OSError) as error:
        print(f"drystone agent: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        logger().exception("agent ends")
        print(f"drystone agent: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _occupy(folder: Path) -> int:
    """One agent per folder: the lock goes with the process, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise FolderError(f"{folder} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(lock, 20, 0).decode(errors="replace").strip()
        os.close(lock)
        raise FolderError(f"another agent (process {holder}) runs on {folder}") from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


class _Agent:
    """The parts of one process, and the order in which they begin and end."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._cluster = options.runtime.cluster
        self._instance = uuid.uuid4().hex
        self._journal = Journal(options.folder / "journal")
        state, effects = restored(
            self._journal.read(),
            terms=options.terms,
            cluster=self._cluster,
            instance=self._instance,
            now_ms=boot_ms(),
        )
        self._engine = Engine(state, effects, self._journal)
        chance = random.Random(self._instance)  # noqa: S311 (only jitter)
        self._outbox = self._engine.outbox = Outbox(self._engine.tell, chance)
        self._hub = KeeperHub(self._engine.tell, self._machine_of, options.token)
        self._engine.keepers = self._hub
        self._connected = False

    async def run(self) -> None:
        """Until a signal, or until a part fails: then its error."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        stopping = asyncio.create_task(stop.wait())
        parts = [asyncio.create_task(self._engine.run())]
        if self._options.simulate is not None:
            parts.append(asyncio.create_task(self._simulated().run()))
        listening = [unix_socket(self._options.folder / SOCKET_NAME)]
        listening += [tcp_socket(self._options.listen)] if self._options.listen else []
        http = server(create_app(self._hub, self._facts, self._start_of))
        serving = asyncio.create_task(http.serve(sockets=listening))
        address = self._http_address(listening[-1].getsockname())
        logger().info("serving keepers", folder=str(self._options.folder), http=address)
        if self._options.listen and not self._options.token:
            logger().warning("no token: who reaches this address can act as a keeper", http=address)
        joined = asyncio.create_task(self._join(address))
        try:
            await _first_of([stopping, joined, serving, *parts])
        finally:
            logger().info("stopping")
            joined.cancel()
            await asyncio.gather(joined, return_exceptions=True)
            await self._engine.idle()
            http.should_exit = True
            for part in parts:
                part.cancel()
            await asyncio.gather(serving, *parts, return_exceptions=True)
            self._journal.close()
            (self._options.folder / SOCKET_NAME).unlink(missing_ok=True)

    async def _join(self, address: str) -> None:
        """All that needs Temporal; when cancelled, orders stop first and reports go out last."""
        metrics = MetricBuffer(UPDATES_MAX)
        client = await self._client(Runtime(telemetry=TelemetryConfig(metrics=metrics)))
        self._connected = True
        signals = TemporalSignals(client, self._cluster, self._instance)
        activities = AgentActivities(self._engine, self._cluster)
        settings = self._options.runtime
        heart = Heart(
            self._engine,
            signals,
            activities,
            metrics,
            heartbeat_s=settings.heartbeat_s,
            http_address=address,
            site=settings.site,
        )
        orders = orders_of(client, activities, self._cluster, settings.shutdown_grace_s)
        sending = asyncio.create_task(self._outbox.run(signals))
        taking = asyncio.create_task(orders.run())
        beating = asyncio.create_task(heart.run())
        try:
            await _first_of([sending, taking, beating])
        finally:
            beating.cancel()
            await _shut_down(orders, taking)
            left = await self._outbox.flushed(FLUSH_S_MAX)
            logger().info("reports sent" if not left else "reports kept", unsent=left)
            sending.cancel()
            await asyncio.gather(sending, beating, return_exceptions=True)

    async def _client(self, runtime: Runtime) -> Client:
        """Temporal may come later than we do, or be down for long: keepers are served meanwhile."""
        while True:
            try:
                return await connect(self._options.runtime, runtime=runtime)
            except (RuntimeError, RPCError) as error:
                logger().warning("Temporal not reached", error=str(error)[:200])
                await asyncio.sleep(CONNECT_AGAIN_S)

    def _simulated(self) -> SimulatedFleet:
        assert self._options.simulate is not None
        reports = read_machines(self._options.simulate, self._cluster, self._instance)
        lease_s = self._options.runtime.lease_s
        fleet = SimulatedFleet(reports, lease_s, self._engine.tell)
        self._engine.keepers = fleet
        self._hub.simulated = True
        return fleet

    def _machine_of(self, attempt: str) -> str | None:
        state = self._engine.state
        known = state.live.get(attempt) or remembered(state, attempt)
        return None if known is None else known.machine

    def _start_of(self, attempt: str) -> datetime | None:
        state = self._engine.state
        known = state.live.get(attempt) or remembered(state, attempt)
        return None if known is None else known.started_at

    def _http_address(self, name: object) -> str:
        settings = self._options.runtime
        if settings.agent_url or not isinstance(name, tuple):
            return settings.agent_url
        shown, port = self._options.listen.rpartition(":")[0], name[1]
        return f"http://{shown}:{port}"

    def _facts(self) -> dict[str, object]:
        state = self._engine.state
        return {
            "cluster": self._cluster,
            "instance": self._instance,
            "temporal": self._connected,
            "epoch": state.epoch,
            "lease_ms": max(0, state.lease_until_ms - boot_ms()),
            "keepers": self._hub.count,
            "machines": len(state.machines),
            "attempts": len(state.live),
            "braked": state.braked,
            "misfits": self._hub.misfits,
        }


async def _first_of(tasks: "Sequence[asyncio.Task[Any]]") -> None:
    """Until one of them ends; its error, if it failed."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _shut_down(orders: Worker, taking: "asyncio.Task[None]") -> None:
    if not taking.done():
        await orders.shutdown()
    await asyncio.gather(taking, return_exceptions=True)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # The interpreter's own exit sometimes aborts in the SDK's threads (temporalio's issue 300).
    os._exit(status)
