"""Each port method has one registered body of its name; names that two packages share agree."""

import inspect

import pytest
from temporalio import activity

import workflows.attributes
import workflows.ports
from activities.audit import Audits
from activities.clusters import Clusters
from activities.ledger import Ledger
from activities.placement import Placement
from agent.link import AgentActivities
from runtime.temporal import SEARCH_ATTRIBUTES
from tests.activities.agents import TinyAgent
from tests.workflows.fakes import FakeAgent, FakeAudits, FakeClusterLedger, FakeLedger, FakeRounds
from workflows.cluster import ClusterWorkflow
from workflows.placement import PlacementWorkflow
from workflows.task import TaskWorkflow

PORTS = [
    workflows.ports.LedgerPort,
    workflows.ports.PlacementPort,
    workflows.ports.ClusterPort,
    workflows.ports.AgentPort,
    workflows.ports.AuditPort,
]
BODIES = [Ledger, Placement, Clusters, Audits, AgentActivities]
FAKES = [FakeLedger, FakeRounds, FakeClusterLedger, FakeAudits, FakeAgent, TinyAgent]


def methods(port: type) -> dict[str, str]:
    """The activities of a class: method and the name it is registered under."""
    found = {}
    for name, method in inspect.getmembers(port, inspect.isfunction):
        definition = activity._Definition.from_callable(method)
        if definition is not None:
            found[name] = str(definition.name)
    return found


@pytest.mark.parametrize("body", [*BODIES, *FAKES])
def test_a_body_registers_every_method_of_its_port_under_the_same_name(body: type) -> None:
    (port,) = [port for port in PORTS if issubclass(body, port)]
    assert methods(body) == methods(port)
    assert all(method == name for method, name in methods(port).items())


def test_no_two_ports_share_a_name() -> None:
    names = [name for port in PORTS for name in methods(port)]
    assert len(names) == len(set(names))


def test_workflows_and_runtime_mean_the_same_search_attributes() -> None:
    ours = {
        workflows.attributes.TEAM.name,
        workflows.attributes.PHASE.name,
        workflows.attributes.PRIORITY.name,
        workflows.attributes.CLUSTER.name,
    }
    assert ours == {key.name for key in SEARCH_ATTRIBUTES}


def test_names_that_agents_and_clients_use_as_text_stay() -> None:
    assert TaskWorkflow.__name__ == "TaskWorkflow"
    assert PlacementWorkflow.__name__ == "PlacementWorkflow"
    assert ClusterWorkflow.__name__ == "ClusterWorkflow"
    assert TaskWorkflow.report.__name__ == "report"
    assert ClusterWorkflow.tell.__name__ == "tell"
    assert (PlacementWorkflow.ring.__name__, PlacementWorkflow.gone.__name__) == ("ring", "gone")
