"""Loss: who is told to close which number, and when the room of a lost attempt is free."""

from datetime import timedelta

from domain.attempt import Ending, EndKind, Phase, StopCause
from domain.claims import Requeue
from domain.protocol import Orphan, StopOrder
from domain.reasons import Reason
from domain.task import OnLoss
from store.acts import acts
from store.brake import lift_brake
from store.clusters import begin_grant, confirm_lost, fence, mark_suspect
from store.losses import LostAttempt, gone, loss_page, orphan
from store.orders import orders
from store.overview import team_usage
from tests.store.test_clusters import lose, several, used_cpu
from tests.store.world import EXITED, FENCED, World, a_machine, a_task


def told(world: World, cluster: str = "c1") -> list[str]:
    """The ids of the tasks that a page names."""
    return [lost.key.split("/")[1] for lost in world.do(loss_page, cluster, world.now).lost]


def three(world: World) -> None:
    """One running task of each policy on c1."""
    world.cluster("c1", a_machine(cpu_milli=9_000))
    for policy in OnLoss:
        world.running(a_task(policy.value, on_loss=policy))


def test_a_reachable_cluster_has_lost_nothing(world: World) -> None:
    three(world)
    assert told(world) == []


def test_a_suspect_cluster_loses_only_what_wants_to_be_replaced_at_once(world: World) -> None:
    three(world)
    world.do(mark_suspect, "c1", 1, world.now)
    assert told(world) == ["replace_at_once"]
    assert world.settle(FENCED, key="blue/replace_at_once").mine
    assert told(world) == []


def test_a_superseded_attempt_keeps_its_room_and_is_stopped_at_the_next_contact(
    world: World,
) -> None:
    three(world)
    world.do(mark_suspect, "c1", 1, world.now)
    told(world)
    world.settle(FENCED, key="blue/replace_at_once")
    assert used_cpu(world) == 3_000
    assert world.read(team_usage)[0].used.cpu_milli == 2_000
    world.beat()
    _, asked = world.do(orders, "c1")
    assert [(o.key, o.cause) for o in asked if isinstance(o, StopOrder)] == [
        ("blue/replace_at_once", StopCause.SUPERSEDED)
    ]


def test_contact_ends_a_supersession_that_no_workflow_has_closed(world: World) -> None:
    three(world)
    world.do(mark_suspect, "c1", 1, world.now)
    told(world)
    world.beat()
    assert not world.settle(FENCED, key="blue/replace_at_once").mine
    assert told(world) == []


def test_a_fenced_cluster_loses_all_but_those_that_wait_and_repeats_until_settled(
    world: World,
) -> None:
    three(world)
    lose(world)
    assert told(world) == ["replace_after_fence", "replace_at_once"]
    assert told(world) == ["replace_after_fence", "replace_at_once"]
    assert world.settle(FENCED, key="blue/replace_after_fence").mine
    assert told(world) == ["replace_at_once"]
    assert world.phase("blue/replace_after_fence") is Phase.PENDING
    assert world.phase("blue/wait") is Phase.RUNNING


def test_a_replaced_attempt_holds_room_but_no_quota_until_it_has_ended(world: World) -> None:
    three(world)
    world.cluster("c2", a_machine("m2"))
    lose(world)
    told(world)
    key = "blue/replace_after_fence"
    world.settle(FENCED, Requeue(not_before=world.now), key=key)
    assert used_cpu(world) == 3_000
    assert world.read(team_usage)[0].used.cpu_milli == 2_000
    assert world.claim(key, "m2", "c2") == 2
    granted = world.do(begin_grant, "c1", world.now)
    assert granted.closed == (f"{key}#1",)
    assert not world.settle(EXITED, key=key, late=True).mine
    assert used_cpu(world) == 2_000
    assert world.do(begin_grant, "c1", world.now).closed == ()
    assert world.task(key).number == 2


def test_pages_follow_one_another(world: World) -> None:
    world.cluster("c1", a_machine(cpu_milli=9_000))
    for number in range(5):
        world.running(a_task(f"t{number}"))
    lose(world)
    seen: list[LostAttempt] = []
    after: str | None = ""
    while after is not None:
        page = world.do(loss_page, "c1", world.now, after=after, limit=2)
        seen += page.lost
        after = page.after
    assert [(lost.key, lost.number, lost.machine, lost.reason) for lost in seen] == [
        (f"blue/t{number}", 1, "m1", Reason.CLUSTER_LOST) for number in range(5)
    ]


def test_while_the_brake_holds_nothing_fenced_is_replaced(world: World) -> None:
    three(world)
    for name in several(world, 5)[1:]:
        assert name
    world.do(mark_suspect, "c1", world.grant(), world.now)
    epoch = world.do(orders, "c1")[0]
    assert world.do(fence, "c1", epoch, world.now)
    world.do(mark_suspect, "c2", 1, world.now)
    assert told(world) == ["replace_at_once"]
    assert not world.settle(FENCED, key="blue/replace_after_fence").mine
    world.do(lift_brake, world.now, "ann")
    assert told(world) == ["replace_after_fence", "replace_at_once"]


def test_the_brake_holds_back_a_loss_that_was_already_told(world: World) -> None:
    several(world, 5)
    world.running(machine="m-c1")
    lose(world)
    assert told(world) == ["t"]
    world.do(mark_suspect, "c2", 1, world.now)
    assert not world.settle(FENCED).mine
    assert world.phase() is Phase.RUNNING
    world.do(lift_brake, world.now, "ann")
    assert world.settle(FENCED).mine


def test_a_word_that_a_cluster_is_lost_ends_waiting_too_and_frees_its_room(world: World) -> None:
    three(world)
    world.withdraw(abandon=True, key="blue/replace_at_once")
    world.do(confirm_lost, "c1", None, "ann", world.now)
    assert used_cpu(world) == 2_000
    assert told(world) == ["replace_after_fence", "wait"]
    for key in ("blue/replace_after_fence", "blue/wait"):
        assert world.settle(FENCED, key=key).mine
    assert used_cpu(world) == 0
    assert world.read(team_usage)[0].used.cpu_milli == 0
    # Should it come back against all words, it must still not go on with these.
    granted = world.do(begin_grant, "c1", world.now)
    assert granted.closed == tuple(sorted(f"blue/{policy.value}#1" for policy in OnLoss))


def test_a_word_that_a_machine_is_lost_concerns_only_that_machine(world: World) -> None:
    world.cluster("c1", a_machine("m1"), a_machine("m2"))
    world.running(a_task("here", on_loss="wait"), "m1")
    world.running(a_task("there"), "m2")
    world.do(confirm_lost, "c1", "m1", "ann", world.now)
    page = world.do(loss_page, "c1", world.now)
    assert [(lost.key, lost.reason) for lost in page.lost] == [("blue/here", Reason.MACHINE_LOST)]
    assert world.settle(FENCED, key="blue/here").mine
    assert (used_cpu(world, "m1"), used_cpu(world, "m2")) == (0, 1_000)


def test_a_machine_that_comes_back_against_all_words_is_told_to_stop(world: World) -> None:
    """Its agent goes on under its lease all the time: no grant tells it what is closed."""
    world.cluster("c1", a_machine("m1"), a_machine("m2"))
    world.running(a_task("here", on_loss="wait"), "m1")
    world.do(confirm_lost, "c1", "m1", "ann", world.now)
    assert world.settle(FENCED, key="blue/here").mine
    assert world.claim("blue/here", "m2") == 2
    _, asked = world.do(orders, "c1")
    stops = [(o.key, o.number, o.machine) for o in asked if isinstance(o, StopOrder)]
    assert stops == [("blue/here", 1, "m1")]


def test_who_said_that_something_is_lost_is_written_down_once(world: World) -> None:
    world.cluster()
    for _ in range(2):
        world.do(confirm_lost, "c1", "m1", "ann", world.now)
    world.later(1)
    world.do(confirm_lost, "c1", None, "bob", world.now)
    said = [(act.by, act.act, act.subject, act.at) for act in world.read(acts)]
    assert said == [
        ("bob", "confirm-lost", "c1", world.now),
        ("ann", "confirm-lost", "c1/m1", world.now - timedelta(seconds=1)),
    ]


def an_orphan(world: World, number: int = 1) -> Orphan:
    return Orphan(key="blue/t", number=number, machine="m1", ending=STOPPED_GONE, at=world.now)


STOPPED_GONE = Ending(kind=EndKind.STOPPED, stop_cause=StopCause.WORKFLOW_GONE)


def test_an_orphan_releases_its_claim_and_closes_the_row(world: World) -> None:
    world.cluster()
    world.running()
    world.do(orphan, "c2", an_orphan(world), world.now)
    assert world.phase() is Phase.RUNNING
    world.do(orphan, "c1", an_orphan(world), world.now)
    outcome = world.task().outcome
    assert outcome is not None
    assert (outcome.phase, outcome.reason) == (Phase.CANCELLED, Reason.WORKFLOW_GONE)
    assert used_cpu(world) == 0
    assert world.do(orphan, "c1", an_orphan(world), world.now) == set()


def test_an_orphan_of_a_closed_number_only_releases(world: World) -> None:
    world.cluster()
    world.running()
    lose(world)
    told(world)
    world.settle(FENCED)
    world.do(orphan, "c1", an_orphan(world), world.now)
    assert used_cpu(world) == 0
    assert world.phase() is Phase.PENDING


def test_an_orphan_whose_attempt_a_new_workflow_has_adopted_is_asked_about_first(
    world: World,
) -> None:
    world.cluster()
    world.running()
    world.enqueue()
    world.answer("inquiry", "taken")
    world.do(orphan, "c1", an_orphan(world), world.now)
    assert world.phase() is Phase.RUNNING
    assert [order.kind for order in world.do(orders, "c1")[1]] == ["inquiry"]
    world.do(orphan, "c1", an_orphan(world), world.now)
    assert world.phase() is Phase.CANCELLED


def test_a_waiting_row_without_a_workflow_is_closed(world: World) -> None:
    world.enqueue()
    world.do(gone, ["blue/t", "blue/unknown"], world.now)
    assert world.phase() is Phase.PENDING  # It was enqueued a moment ago: the news is older.
    world.later(6)
    world.do(gone, ["blue/t"], world.now)
    outcome = world.task().outcome
    assert outcome is not None
    assert outcome.reason is Reason.WORKFLOW_GONE
    world.do(gone, ["blue/t"], world.now)


def test_a_claimed_row_without_a_workflow_is_told_to_stop(world: World) -> None:
    world.cluster()
    world.running()
    world.later(6)
    _, clusters = world.do(gone, ["blue/t"], world.now)
    assert clusters == {"c1"}
    _, asked = world.do(orders, "c1")
    assert [o.cause for o in asked if isinstance(o, StopOrder)] == [StopCause.WORKFLOW_GONE]
    assert world.phase() is Phase.STOPPING
