"""One round of placement: order, filter, score, assign, explain. Pure but for the index it fills.

The plain meaning: for each task in order, of the machines that pass every predicate now, take the
one with the best score now (equal scores: the round's draw), and take the room. A task for which
there is none waits, and holds up nobody behind it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from domain.fleet import PendingTask, Proposal
from domain.reasons import Reason
from domain.verdict import Verdict
from placement.demand import NOTHING_COOLS, Cooling, Shape, shapes_of
from placement.explain import explain
from placement.index import MachineIndex
from placement.order import in_order
from placement.policy import DEFAULT_POLICY, Policy
from placement.scan import Scan, draw_ties

ROUND_TASKS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What a round decided: every task is either placed or has a verdict."""

    placed: tuple[Proposal, ...]
    """In the order in which room was taken."""
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
    """Place what fits and take its room on the index. Equal inputs and seed give equal results.

    Within a round room only shrinks, so a shape that has failed once is not looked at again.
    """
    queue = in_order(pending)
    tasks, put_off = queue[:tasks_max], queue[tasks_max:]
    shapes = shapes_of(tasks, cooling)
    draw = draw_ties(index, seed)
    scans: dict[Shape, Scan] = {}
    full: set[Shape] = set()
    touched: list[int] = []
    placed: list[Proposal] = []
    waiting: list[tuple[PendingTask, Shape]] = []
    for task, shape in zip(tasks, shapes, strict=True):
        if shape in full:
            waiting.append((task, shape))
            continue
        scan = scans.get(shape)
        if scan is None:
            scan = scans[shape] = Scan(index, shape, policy, draw)
        slot = scan.best(touched)
        if slot is None:
            full.add(shape)
            waiting.append((task, shape))
            continue
        index.take(slot, scan.ask, shape.neighbour)
        touched.append(slot)
        machine = index.machine(slot)
        placed.append(Proposal(task.key, machine.cluster, machine.name))
    reasons = {shape: explain(index, shape) for shape in full}
    verdicts = {task.key: reasons[shape] for task, shape in waiting}
    later = Verdict(reason=Reason.NOT_YET_CONSIDERED, detail=f"{tasks_max} tasks went first")
    verdicts.update((task.key, later) for task in put_off)
    return RoundResult(tuple(placed), verdicts)
