"""The worker as a process: how it begins, how it is stopped, what it says when it cannot work."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from temporalio.testing import WorkflowEnvironment

from tests.support.fleet import free_port, wait_until

STOP_S_MAX = 30


def start(folder: Path, **settings: str) -> subprocess.Popen[bytes]:
    """A worker process with these settings, its words in a file."""
    environment = {f"DRYSTONE_{name.upper()}": value for name, value in settings.items()}
    environment = {**os.environ, "DRYSTONE_DATA_DIR": str(folder), **environment}
    with (folder / "worker.log").open("wb") as log:
        command = [sys.executable, "-P", "-m", "worker"]
        return subprocess.Popen(command, env=environment, stderr=log)


def said(folder: Path) -> str:
    return (folder / "worker.log").read_text()


def metrics(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return bytes(answer.read())


async def test_it_serves_metrics_and_ends_well_when_told_to(
    dev_server_env: WorkflowEnvironment, tmp_path: Path
) -> None:
    port = free_port()
    address = dev_server_env.client.service_client.config.target_host
    running = start(tmp_path, temporal_address=address, metrics_port=str(port))
    try:
        wait_until(lambda: "worker runs" in said(tmp_path), "it runs")
        assert b"temporal_" in metrics(port)
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(STOP_S_MAX) == 0
    assert "worker stopped" in said(tmp_path)


def test_it_can_be_stopped_while_it_waits_for_temporal(tmp_path: Path) -> None:
    running = start(tmp_path, temporal_address=f"127.0.0.1:{free_port()}")
    wait_until(lambda: "not there yet" in said(tmp_path), "it waits")
    running.send_signal(signal.SIGTERM)
    assert running.wait(STOP_S_MAX) == 0


def test_settings_that_make_no_sense_are_named(tmp_path: Path) -> None:
    running = start(tmp_path, lease_s="soon")
    assert running.wait(STOP_S_MAX) == 2
    assert "DRYSTONE_LEASE_S" in said(tmp_path)


def test_a_ledger_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    running = start(tmp_path, database_url=f"sqlite:///{tmp_path}/file/ledger.db")
    assert running.wait(STOP_S_MAX) == 1
    assert "drystone worker:" in said(tmp_path)
