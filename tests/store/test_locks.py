"""Everybody at once: no two transactions wait for each other in a ring, and all adds up after."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine

from domain.attempt import StopCause
from domain.claims import Enqueue, Requeue, Settle
from domain.fleet import Proposal
from domain.protocol import (
    DeliveryAnswer,
    GrantAnswer,
    Heartbeat,
    Offer,
    OrderAnswer,
    RunningDigest,
)
from domain.reasons import Reason
from domain.supervision import (
    BeginGrant,
    ClusterAnswer,
    ClusterOperation,
    Fence,
    GrantBegun,
    LeaseTerms,
    LoadOrders,
    MarkSuspect,
    NoteAnswers,
    NoteGranted,
    NoteHeartbeat,
    OrdersLoaded,
)
from domain.verdict import Verdict
from store.audit import audit
from store.bell import bell_busy, bell_idle
from store.claims import claim
from store.ledger import apply
from store.losses import loss_page
from store.orders import request_stop
from store.overview import cluster as cluster_view
from store.session import transaction
from store.supervision import supervise
from store.verdicts import record_verdicts
from tests.store.world import EXITED, LOST, World, a_machine, a_task

CLUSTERS = ("c1", "c2", "c3")
TASKS = 30
THREADS = 6
STEPS = 40


class Crowd:
    """One of several that do, each in transactions as the processes make them, anything at all."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)

    def meddle(self) -> None:
        """So many steps."""
        steps: list[Callable[[], None]] = [
            *(self.place, self.place, self.place, self.settle, self.settle, self.enqueue),
            *(self.deliver, self.deliver, self.beat, self.grant, self.lose, self.page, self.stop),
        ]
        for _ in range(STEPS):
            self.chance.choice(steps)()

    def keys(self) -> list[str]:
        """Some tasks, in no order: putting them into one is the ledger's business."""
        numbers = [self.chance.randrange(TASKS) for _ in range(8)]
        return [f"team{number % 3}/t{number}" for number in dict.fromkeys(numbers)]

    def supervise(self, operation: ClusterOperation) -> ClusterAnswer:
        """One question of a ClusterWorkflow."""
        with transaction(self.world.engine) as connection:
            done = supervise(connection, operation, now=self.world.now, terms=LeaseTerms())
        return done.answer

    def place(self) -> None:
        keys = self.keys()
        wishes = [
            Proposal(key, self.chance.choice(CLUSTERS), f"m{self.chance.randrange(3)}")
            for key in keys[:4]
        ]
        verdict = Verdict(reason=self.chance.choice((Reason.CORDONED, Reason.TAINTED)))
        partition = self.chance.randrange(3)
        with transaction(self.world.engine) as connection:
            wakes = bell_busy(connection, partition, self.world.now)
        with transaction(self.world.engine) as connection:
            claim(connection, 0, wishes, self.world.now)
            record_verdicts(connection, dict.fromkeys(keys[4:], verdict), self.world.now)
            bell_idle(connection, partition, wakes, self.world.now)

    def settle(self) -> None:
        ends = [
            Settle(
                key=key,
                number=self.chance.randrange(1, 4),
                cluster=self.chance.choice(CLUSTERS),
                ending=self.chance.choice((EXITED, LOST)),
                then=Requeue(not_before=self.world.now),
                at=self.world.now,
            )
            for key in self.keys()
        ]
        with transaction(self.world.engine) as connection:
            apply(connection, ends, partitions=1, now=self.world.now)

    def enqueue(self) -> None:
        keys = [*self.keys(), f"team0/new{self.chance.randrange(20)}"]
        specs = [a_task(key.split("/")[1], team=key.split("/")[0]) for key in keys]
        asked = [Enqueue(spec=spec, digest="d", at=self.world.now) for spec in specs]
        with transaction(self.world.engine) as connection:
            apply(connection, asked, partitions=1, now=self.world.now)

    def deliver(self) -> None:
        name = self.chance.choice(CLUSTERS)
        loaded = self.supervise(LoadOrders(cluster=name, deliveries_succeed=True))
        assert isinstance(loaded, OrdersLoaded)
        if loaded.delivery is None:
            return
        answers = [
            OrderAnswer(
                key=order.key,
                number=order.number,
                order=order.kind,
                answer="admitted" if isinstance(order, Offer) else "taken",
            )
            for order in loaded.delivery.orders
        ]
        epoch = loaded.delivery.epoch
        said = DeliveryAnswer(instance="1", epoch=epoch, answers=tuple(answers))
        self.supervise(NoteAnswers(cluster=name, answer=said))

    def epoch(self, name: str) -> int:
        """The present epoch of a cluster."""
        view = self.world.read(cluster_view, name)
        assert view is not None
        return view.epoch

    def beat(self) -> None:
        name = self.chance.choice(CLUSTERS)
        machine = a_machine(f"m{self.chance.randrange(3)}", 3_000 + self.chance.randrange(3))
        beat = Heartbeat(
            instance="1",
            epoch=self.epoch(name),
            seq=1,
            machines=(machine,),
            running=(RunningDigest(machine=machine.name, count=0, xor=0),),
        )
        self.supervise(NoteHeartbeat(cluster=name, heartbeat=beat, reachable=True))

    def grant(self) -> None:
        name = self.chance.choice(CLUSTERS)
        begun = self.supervise(BeginGrant(cluster=name))
        assert isinstance(begun, GrantBegun)
        answer = GrantAnswer(instance="1", epoch=begun.grant.epoch, ended=begun.grant.closed)
        self.supervise(NoteGranted(cluster=name, answer=answer))

    def lose(self) -> None:
        name = self.chance.choice(CLUSTERS)
        epoch = self.epoch(name)
        self.supervise(MarkSuspect(cluster=name, epoch=epoch))
        self.supervise(Fence(cluster=name, epoch=epoch))

    def page(self) -> None:
        with transaction(self.world.engine) as connection:
            loss_page(connection, self.chance.choice(CLUSTERS), self.world.now)

    def stop(self) -> None:
        with transaction(self.world.engine) as connection:
            request_stop(connection, self.keys()[0], StopCause.PREEMPT, self.world.now)


@pytest.mark.parametrize("seed", [11])
def test_everybody_at_once(engine: Engine, seed: int) -> None:
    print(f"seed {seed}")
    world = World(engine)
    for name in CLUSTERS:
        world.cluster(name, *(a_machine(f"m{i}", cpu_milli=3_000) for i in range(3)))
    for number in range(TASKS):
        team = f"team{number % 3}"
        world.enqueue(a_task(f"t{number}", team=team, on_loss="replace_at_once"))
    crowd = [Crowd(world, seed * 100 + number) for number in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(one.meddle) for one in crowd]:
            done.result()
    assert world.read(audit) == []
