"""Fixtures only: a clean environment, the databases, the Temporal servers."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from temporalio.testing import WorkflowEnvironment

from runtime.settings import ENV_PREFIX
from runtime.temporal import (
    SEARCH_ATTRIBUTES,
    plugin,
    register_search_attributes,
    temporal_binary,
    time_skipping_binary,
)
from tests.support.postgres import database_url, postgres_server, postgres_url

__all__ = ["database_url", "postgres_server", "postgres_url"]

hypothesis_settings.register_profile(
    "ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.register_profile("wide", deadline=None, max_examples=2_000)
hypothesis_settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Without it the interpreter sometimes aborts at exit (temporalio's issue 300).
_AFTER_SHUTDOWN_S = 0.3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", default=None, help="folder of peer cases (make cases CASES=...)")
    parser.addoption(
        "--seed", type=int, default=None, help="seed of the random tests; each prints its own"
    )


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> None:
    """What a developer has set for a running system must not reach the tests."""
    for name in [name for name in os.environ if name.startswith(ENV_PREFIX)]:
        del os.environ[name]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def time_skipping_env() -> AsyncIterator[WorkflowEnvironment]:
    """Hours in milliseconds, in the strict sandbox. One clock for all: run its tests in turn.

    A server for each file: an activity that one file left running would hold up the other's clock.
    """
    env = await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(time_skipping_binary()),
        test_server_startup_timeout=timedelta(seconds=30),
        plugins=[plugin(strict=True)],
    )
    await register_search_attributes(env.client)
    yield env
    await env.shutdown()
    await asyncio.sleep(_AFTER_SHUTDOWN_S)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def dev_server_env() -> AsyncIterator[WorkflowEnvironment]:
    """The real server on a real clock, in memory, in the strict sandbox."""
    env = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(temporal_binary()),
        dev_server_log_level="error",
        dev_server_extra_args=[
            "--dynamic-config-value",
            "history.transferProcessorMaxPollRPS=2000",
        ],
        search_attributes=SEARCH_ATTRIBUTES,
        plugins=[plugin(strict=True)],
    )
    yield env
    await env.shutdown()
    await asyncio.sleep(_AFTER_SHUTDOWN_S)
