"""What people and programs read of the ledger."""

from datetime import timedelta
from typing import Any

import pytest

from domain.attempt import EndKind, Phase
from domain.errors import InvalidError
from domain.reasons import Reason
from domain.verdict import Verdict
from domain.views import EventKind
from store.overview import clusters, partitions, phase_counts, team_usage
from store.tasks import attempts, events, task, tasks
from store.transitions import EVENTS_KEPT_MAX
from store.verdicts import record_verdicts
from store.waits import verdict_history
from tests.store.world import FAILED, World, a_task, succeeded

NO_CPU = Verdict(reason=Reason.NO_ROOM_CPU, machines=2, lost={Reason.NO_ROOM_CPU: 2})
CORDONED = Verdict(reason=Reason.CORDONED, machines=2, lost={Reason.CORDONED: 2})


def test_a_task_tells_where_it_stands(world: World) -> None:
    world.cluster()
    began = world.now
    world.running(a_task(priority="HIGH"))
    world.later(5)
    world.settle(then=succeeded())
    view = world.task()
    assert (view.team, view.id, view.key) == ("blue", "t", "blue/t")
    assert view.spec == a_task(priority="HIGH")
    assert (view.phase, view.number) == (Phase.SUCCEEDED, 1)
    assert (view.cluster, view.machine) == ("c1", "m1")
    assert view.outcome == succeeded().outcome
    assert (view.enqueued_at, view.ended_at) == (began, began + timedelta(seconds=5))
    assert world.read(task, "blue/unknown") is None


def test_a_waiting_task_is_nowhere(world: World) -> None:
    world.cluster()
    world.running()
    world.settle(FAILED)
    assert (world.task().cluster, world.task().machine) == (None, None)


def test_attempts_tell_their_story(world: World) -> None:
    world.cluster()
    world.running()
    world.later(1)
    started = world.now
    world.later(1)
    world.settle(FAILED, started_at=started)
    world.claim()
    first, second = world.read(attempts, "blue/t")
    assert (first.number, first.started_at, first.closed) == (1, started, True)
    assert first.ending is not None
    assert (first.ending.kind, first.ending.exit_code) == (EndKind.EXITED, 1)
    assert (second.closed, second.holds_room, second.ending) == (False, True, None)
    assert world.story() == [
        EventKind.ENQUEUED,
        EventKind.PLACED,
        EventKind.ADMITTED,
        EventKind.ENDED,
        EventKind.WAITS_AGAIN,
        EventKind.PLACED,
    ]


def test_only_the_newest_events_are_kept(memory: World) -> None:
    memory.cluster()
    memory.running()
    for number in range(1, 51):
        memory.settle(FAILED, number=number)
        memory.claim()
    kept = memory.read(events, "blue/t")
    assert len(kept) == EVENTS_KEPT_MAX
    assert kept[-1].kind is EventKind.PLACED
    assert [event.seq for event in kept] == list(range(kept[0].seq, kept[0].seq + len(kept)))


def test_a_list_pages_from_the_newest_and_stays_in_order_while_tasks_come(world: World) -> None:
    for number in range(5):
        world.enqueue(a_task(f"t{number}"))
        world.later(0 if number == 2 else 1)
    first = world.read(tasks, limit=2)
    assert [view.id for view in first.items] == ["t4", "t3"]
    world.enqueue(a_task("new"))
    second = world.read(tasks, limit=2, cursor=first.cursor)
    third = world.read(tasks, limit=2, cursor=second.cursor)
    assert [view.id for view in (*second.items, *third.items)] == ["t2", "t1", "t0"]
    assert third.cursor is None


def test_a_list_is_filtered(world: World) -> None:
    world.cluster()
    world.running(a_task("run", priority="LOW"))
    world.enqueue(a_task("wait", constraints={"service": "web"}))
    world.enqueue(a_task("red", team="red"))

    def ids(**given: Any) -> list[str]:
        return sorted(view.id for view in world.read(tasks, **given).items)

    assert ids() == ["red", "run", "wait"]
    assert ids(team="red") == ["red"]
    assert ids(phase=Phase.RUNNING) == ["run"]
    assert ids(cluster="c1") == ["run"]
    assert ids(priority=300) == ["run"]
    assert ids(service="web") == ["wait"]
    assert ids(team="blue", phase=Phase.PENDING) == ["wait"]


@pytest.mark.parametrize(
    "cursor", ["x", "", "W10=", "WzEsMl0=", "é", "WzFlOTksImEiXQ==", "A" * 2000]
)
def test_a_cursor_that_no_list_gave_is_refused(memory: World, cursor: str) -> None:
    with pytest.raises(InvalidError, match="cursor"):
        memory.read(tasks, cursor=cursor)


def test_verdicts_are_written_when_they_say_something_new(world: World) -> None:
    world.enqueue()
    began = world.now
    assert world.do(record_verdicts, {"blue/t": NO_CPU, "blue/x": NO_CPU}, world.now) == 1
    world.later(60)
    assert world.do(record_verdicts, {"blue/t": NO_CPU}, world.now) == 0
    more = NO_CPU.model_copy(update={"machines": 3, "lost": {Reason.NO_ROOM_CPU: 3}})
    assert world.do(record_verdicts, {"blue/t": more}, world.now) == 1
    assert world.do(record_verdicts, {"blue/t": NO_CPU}, world.now) == 0
    latest = world.task().verdict
    assert latest is not None
    assert (latest.at, latest.verdict) == (began, more)
    assert world.do(record_verdicts, {"blue/t": CORDONED}, world.now) == 1
    history = world.read(verdict_history, "blue/t")
    assert [entry.verdict for entry in history] == [more, CORDONED]


def test_the_verdict_of_an_earlier_wait_is_not_shown(world: World) -> None:
    world.cluster()
    world.enqueue()
    world.do(record_verdicts, {"blue/t": NO_CPU}, world.now)
    world.claim()
    assert world.do(record_verdicts, {"blue/t": CORDONED}, world.now) == 0
    world.later(1)
    world.settle(FAILED)
    assert world.task().verdict is None


def test_totals(world: World) -> None:
    world.cluster()
    world.running()
    world.enqueue(a_task("wait"))
    counts = world.read(phase_counts)
    assert (counts[Phase.RUNNING], counts[Phase.PENDING], counts[Phase.FAILED]) == (1, 1, 0)
    assert [(v.number, v.waiting) for v in world.read(partitions)] == [(0, 1)]
    assert [(v.name, v.epoch, v.machines, v.attempts) for v in world.read(clusters)] == [
        ("c1", 1, 1, 1)
    ]
    assert [u.used.cpu_milli for u in world.read(team_usage)] == [1_000]
