"""`python -m keeper`: reads the settings, kills what an earlier keeper left, and keeps."""

import asyncio
import os
import random
import signal
import sys
import time
import uuid
from collections.abc import Coroutine, Sequence
from typing import Any

from keeper.attempts import restored
from keeper.children import become_subreaper
from keeper.drivers.process import ProcessDriver
from keeper.drivers.simulated import SimulatedDriver
from keeper.fleet import read_machines, run_fleet
from keeper.journal import Journal
from keeper.link import Link
from keeper.premises import FolderError, Premises, occupy, sweep
from keeper.settings import KeeperSettings, read_settings
from keeper.shell import Identity, KeeperShell, now
from keeper.spawn import Surroundings, inherited_environment
from keeper.tie import Tie
from keeper.warden import kill_all
from runtime.telemetry import logger, set_up_logging

REMAINS_S = 10.0
"""How long to kill what an earlier keeper left before saying (again) that it will not die."""
SWEEP_S = 60.0
LINK_RESTART_S = 1.0


def main(words: Sequence[str]) -> int:
    """Run until told to stop; the exit status."""
    settings = read_settings(words, os.environ)
    set_up_logging(
        settings.runtime, "keeper", cluster=settings.cluster, machine=settings.machine.name
    )
    if settings.machines_file is not None:
        return _run_many(settings)
    try:
        premises = occupy(settings.folder, uuid.uuid4().hex)
    except FolderError as error:
        print(f"drystone keeper: {error}", file=sys.stderr)
        return 1
    _keep_descriptors_to_ourselves()
    become_subreaper()
    while not kill_all(f"{premises.mark}.", premises.journal, seconds_max=REMAINS_S):
        # To register now would let two attempts run at once.
        logger().error("attempts of an earlier keeper do not die", folder=str(premises.folder))
    asyncio.run(_run(settings, premises))
    return 0


async def _run(settings: KeeperSettings, premises: Premises) -> None:
    instance = uuid.uuid4().hex
    journal = Journal(premises.journal, instance)
    remembered = journal.begin(now().at)
    report = settings.machine.report(instance)
    identity = Identity(report, settings.token, settings.runtime.lease_s)
    state = restored(remembered.endings, remembered.tombstones)
    shell = KeeperShell(identity, state, journal, premises.attempts)
    link = Link(settings.agent, shell, random.Random(instance))  # noqa: S311 (only jitter)
    shell.send = link.send
    keeper_mark = f"{premises.mark}.{instance}"
    shell.tie = tie = Tie(keeper_mark, premises.journal, instance)
    around = Surroundings(
        premises.attempts,
        keeper_mark,
        settings.cluster,
        report.name,
        inherited_environment(os.environ),
    )
    shell.driver = (
        SimulatedDriver(shell.tell)
        if settings.simulated
        else ProcessDriver(
            around,
            journal,
            shell.tell,
            output_bytes_max=settings.runtime.output_bytes_max,
            relatives=tie.pids,
        )
    )
    told_to_stop = _on_signals()
    logger().info("keeping", instance=instance, folder=str(premises.folder))
    linked = asyncio.create_task(_again_and_again(link))
    sweeping = asyncio.create_task(_sweep(settings, premises, shell))
    await told_to_stop.wait()
    logger().info("stopping")
    await shell.shut_down(settings.shutdown_grace_s, settings.forget_wait_s)
    for task in (linked, sweeping):
        task.cancel()
    await asyncio.gather(linked, sweeping, return_exceptions=True)
    shell.close()
    shell.driver.close()
    tie.close()
    journal.close()


async def _again_and_again(link: Link) -> None:
    """A fault of ours in the handling of one message must not take the attempts with it."""
    while True:
        try:
            await link.run()
        except Exception:
            logger().exception("the link failed")
        await asyncio.sleep(LINK_RESTART_S)


async def _sweep(settings: KeeperSettings, premises: Premises, shell: KeeperShell) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        old_s = settings.runtime.folders_kept_s
        try:
            await asyncio.to_thread(sweep, premises.attempts, shell.held(), old_s, time.time())
        except OSError as error:
            logger().warning("folders not swept", error=str(error))


def _run_many(settings: KeeperSettings) -> int:
    assert settings.machines_file is not None
    try:
        machines = read_machines(settings.machines_file)
    except (OSError, ValueError, KeyError) as error:
        print(f"drystone keeper: {settings.machines_file}: {error}", file=sys.stderr)
        return 1
    asyncio.run(_until_told(run_fleet(settings, machines)))
    return 0


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
    told_to_stop = _on_signals()
    working = asyncio.create_task(work)
    await told_to_stop.wait()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


def _on_signals() -> asyncio.Event:
    told_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)
    return told_to_stop


def _keep_descriptors_to_ourselves() -> None:
    """What we inherited must not leak into attempts, which close nothing at their exec."""
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number > 2:
            try:
                os.set_inheritable(number, False)
            except OSError:
                continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
