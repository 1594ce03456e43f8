"""One round of placement: order, assign, explain. Pure but for the index it fills.

The batch knows no names; here tasks and machines have them, and every task gets an answer.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from domain.fleet import PendingTask, Proposal
from domain.reasons import Reason
from domain.verdict import Verdict
from placement.assign import UNPLACED, assign
from placement.demand import NOTHING_COOLS, Batch, Cooling, shapes_of
from placement.devices import named
from placement.explain import explain
from placement.index import MachineIndex
from placement.order import in_order
from placement.policy import DEFAULT_POLICY, Policy

ROUND_TASKS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What a round decided: every task is either placed or has a verdict."""

    placed: tuple[Proposal, ...]
    """In the order of the queue."""
    verdicts: dict[str, Verdict]
    """By task key, why it waits, as things stand at the end of the round."""


def place(
    index: MachineIndex,
    pending: Iterable[PendingTask],
    policy: Policy = DEFAULT_POLICY,
    seed: int = 0,
    *,
    cooling: Cooling = NOTHING_COOLS,
    tasks_max: int = ROUND_TASKS_MAX,
) -> RoundResult:
    """Place what fits and take its room on the index. Equal inputs and seed give equal results."""
    queue = in_order(pending)
    tasks, put_off = queue[:tasks_max], queue[tasks_max:]
    batch = Batch.of(shapes_of(tasks, cooling), [int(task.band) for task in tasks])
    assigned = assign(index, batch, policy, seed)
    why = {code: explain(index, batch.shapes[code]) for code in assigned.waiting}
    placed, verdicts = [], {}
    for task, code, slot, devices in zip(
        tasks, batch.code.tolist(), assigned.slot.tolist(), assigned.devices.tolist(), strict=True
    ):
        if slot == UNPLACED:
            verdicts[task.key] = why[code]
            continue
        machine = index.machine(slot)
        placed.append(Proposal(task.key, machine.cluster, machine.name, named(devices)))
    later = Verdict(reason=Reason.NOT_YET_CONSIDERED, detail=f"{tasks_max} tasks went first")
    verdicts.update((task.key, later) for task in put_off)
    return RoundResult(tuple(placed), verdicts)
