"""A fake agent and a real keeper that dials it."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.keeper.fake_agent import FakeAgent, KeeperProcess


@pytest_asyncio.fixture
async def agent(tmp_path: Path) -> AsyncIterator[FakeAgent]:
    """The agent of one test."""
    async with FakeAgent(tmp_path).serving() as served:
        yield served


@pytest.fixture
def keep(tmp_path: Path, agent: FakeAgent) -> Iterator[Callable[..., KeeperProcess]]:
    """Starts the keeper of one test, with these flags and environment."""
    with ExitStack() as stack:

        def start(*flags: str, **environment: str) -> KeeperProcess:
            return stack.enter_context(
                KeeperProcess(tmp_path / "keeper", agent, *flags, **environment)
            )

        yield start


@pytest_asyncio.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FakeAgent]:
    """An agent with a keeper that holds a lease, for tests that only run attempts."""
    folder = tmp_path_factory.mktemp("shared")
    async with FakeAgent(folder).serving() as served:
        with KeeperProcess(folder / "keeper", served):
            await served.leased()
            yield served
