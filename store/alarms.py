"""What a person should look at now: brakes that hold, differences that stand. Reads only."""

from sqlalchemy import Connection, func, select

from domain.audit import Alarms
from store.brake import brake
from store.differences import counts
from store.mapping import instant_or_none
from store.tables import AUDIT_RUN, DOUBTFUL_MACHINE, OPERATOR_ACT

CLUSTERS_NAMED_MAX = 10


def alarms(connection: Connection) -> Alarms:
    """Each alarm as a sentence, and the numbers that go with it."""
    holds, found = brake(connection), dict(counts(connection))
    texts = []
    if holds.held:
        texts.append(
            f"brake: {holds.silent} of {holds.counted} clusters are silent, nothing is replaced"
        )
    named = list(holds.machines)[:CLUSTERS_NAMED_MAX]
    texts += [f"brake: cluster {name} gives no silent machine up" for name in named]
    standing = {fault: count.standing for fault, count in found.items() if count.standing}
    texts += [f"audit: {number} x {fault.value}" for fault, number in standing.items()]
    doubted = connection.scalar(select(func.count()).select_from(DOUBTFUL_MACHINE))
    words = select(OPERATOR_ACT.c.act, func.count()).group_by(OPERATOR_ACT.c.act)
    return Alarms(
        texts=tuple(texts),
        brake=holds,
        counts=found,
        audited_at=instant_or_none(connection.scalar(select(AUDIT_RUN.c.ended_at))),
        machines_doubted=int(doubted or 0),
        acts={row[0]: row[1] for row in connection.execute(words)},
    )
