"""The worker process: settings, ledger, Temporal, then workflows and activities until told to stop.

Exit codes: 0 stopped by a signal; 1 a fatal error; 2 settings that make no sense.
"""

import argparse
import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import uvloop
from pydantic import ValidationError
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError
from temporalio.client import Client
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError

from domain.misfit import told
from runtime.settings import VARIABLES, Settings
from runtime.telemetry import logger, set_up_logging
from runtime.temporal import connect, register_search_attributes
from store.schema import migrate
from store.session import open_engine
from worker.schedule import keep_audit_schedule
from worker.wiring import wired

TRY_AGAIN_S_MAX = 5
START_S_MAX = 120
"""Temporal or the ledger may come later than we do; after so long something is wrong."""

GC_OBJECTS = 20_000

_T = TypeVar("_T")


def main() -> int:
    """Run until SIGTERM or SIGINT."""
    given = _options()
    try:
        settings = Settings(**given)
    except ValidationError as error:
        print(f"drystone worker: settings: {told(error, VARIABLES)}", file=sys.stderr)
        return 2
    set_up_logging(settings, "worker")
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings))
    except Exception as error:
        logger().error("worker ends", error=f"{type(error).__name__}: {error}")
        print(f"drystone worker: {error}", file=sys.stderr)
        return 1
    return 0


def _options() -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        prog="drystone worker", description="Workflows, placement and the scheduler's activities."
    )
    parser.add_argument("--temporal", dest="temporal_address", help="ADDRESS:PORT of Temporal")
    parser.add_argument("--database", dest="database_url", help="URL of the ledger's database")
    return {name: value for name, value in vars(parser.parse_args()).items() if value is not None}


async def serve(settings: Settings) -> None:
    """Connect, run, and finish what was begun once a stop signal has come."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    engine = open_engine(settings.database_url)
    runtime = temporal_runtime(settings)

    async def migrated() -> None:
        await asyncio.to_thread(migrate, engine)

    async def connected() -> Client:
        client = await connect(settings, runtime=runtime)
        await register_search_attributes(client)
        await keep_audit_schedule(client, settings)
        return client

    try:
        if engine.dialect.name == "sqlite":
            await migrated()  # A file that cannot be opened now will not open later either.
        else:
            await _patiently(migrated, stop, "the ledger")
        client = await _patiently(connected, stop, f"Temporal at {settings.temporal_address}")
        if client is not None:
            await _run(settings, client, engine, stop)
    finally:
        engine.dispose()


def temporal_runtime(settings: Settings) -> Runtime | None:
    """With a metrics endpoint of its own where a port is set."""
    if settings.metrics_port == 0:
        return None
    address = f"{settings.metrics_host}:{settings.metrics_port}"
    return Runtime(telemetry=TelemetryConfig(metrics=PrometheusConfig(bind_address=address)))


async def _run(settings: Settings, client: Client, engine: Engine, stop: asyncio.Event) -> None:
    # Activations make and drop many small objects; looking for rings among them at every few
    # hundred, modules included, costs a twentieth of the CPU.
    gc.freeze()
    gc.set_threshold(GC_OBJECTS, 20, 50)
    async with wired(settings, client, engine) as parts:
        running = asyncio.create_task(parts.worker.run())
        stopping = asyncio.create_task(stop.wait())
        logger().info("worker runs", temporal=settings.temporal_address)
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if running.done():
            running.result()  # Raises: a worker ends by itself only when something is wrong.
            return
        await parts.worker.shutdown()
        await running
        logger().info("worker stopped")


async def _patiently(
    attempt: Callable[[], Coroutine[Any, Any, _T]], stop: asyncio.Event, what: str
) -> _T | None:
    """Its result, however late; None when told to stop first."""
    deadline = asyncio.get_running_loop().time() + START_S_MAX
    wait_s = 0.1
    while not stop.is_set():
        try:
            return await attempt()
        except (OSError, RuntimeError, RPCError, OperationalError) as error:
            if asyncio.get_running_loop().time() > deadline:
                raise RuntimeError(f"{what} cannot be reached: {error}") from error
            logger().warning("not there yet", what=what, error=str(error).splitlines()[0])
        try:
            await asyncio.wait_for(stop.wait(), wait_s)
        except TimeoutError:
            wait_s = min(2 * wait_s, timedelta(seconds=TRY_AGAIN_S_MAX).total_seconds())
    return None


if __name__ == "__main__":
    sys.exit(main())
