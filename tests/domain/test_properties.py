"""What holds for every history of a task and for every message: random, derandomised in CI."""

from datetime import timedelta
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from domain.attempt import Ending, EndKind, Outcome, Phase, StopCause, Usage
from domain.claims import (
    Enqueued,
    LedgerAnswer,
    LedgerOperation,
    LiveAttempt,
    Settled,
    WithdrawAnswer,
    Withdrawn,
)
from domain.lifecycle import Event, begin, check, step
from domain.machine import MachineReport
from domain.protocol import (
    AgentMessage,
    Cancel,
    ClusterEnvelope,
    ClusterMessage,
    Delivery,
    DeliveryAnswer,
    DeliveryHint,
    Ended,
    Expire,
    Fenced,
    Grant,
    GrantAnswer,
    KeeperMessage,
    Placed,
    Progress,
    ReRead,
    Started,
    StopRequested,
    TaskEnvelope,
    TaskMessage,
    read_cluster_envelope,
    read_task_envelope,
)
from domain.reasons import Reason
from domain.resources import Resources
from domain.retry import Backoff, Cause, Retries, Spent, backoff, budget_left
from domain.stages import Done, Enqueuing, Settling, TaskState, Withdrawing
from tests.domain.builders import NOW, PLACE, a_spec, a_state

NUMBERS = st.integers(1, 5)
KINDS = st.sampled_from([EndKind.EXITED, EndKind.REFUSED, EndKind.STOPPED, EndKind.LOST])
ENDINGS = st.builds(
    Ending,
    kind=KINDS,
    exit_code=st.sampled_from([None, 0, 1, 137]),
    reason=st.sampled_from([None, Reason.NONZERO_EXIT]),
    stop_cause=st.sampled_from([None, *StopCause]),
    usage=st.builds(Usage, cpu_ms=st.integers(0, 9)),
)
ABOUT = {"number": NUMBERS, "at": st.just(NOW), **{k: st.just(v) for k, v in PLACE.items()}}
MESSAGES = st.one_of(
    st.builds(Placed, **ABOUT),
    st.builds(Started, **ABOUT),
    st.builds(Progress, note=st.text(max_size=5), **ABOUT),
    st.builds(Ended, ending=ENDINGS, started_at=st.sampled_from([None, NOW]), **ABOUT),
    st.builds(Fenced, **ABOUT),
    st.builds(StopRequested, cause=st.sampled_from(list(StopCause)), **ABOUT),
    st.builds(Expire),
    st.builds(Cancel, abandon=st.booleans()),
    st.builds(ReRead),
)
FINAL = st.builds(Outcome, phase=st.sampled_from([p for p in Phase if p.final]), number=NUMBERS)
SPECS = st.builds(
    lambda failures, losses, late: a_spec(
        retries={"failures": failures, "losses": losses}, accept_late_success=late
    ),
    st.integers(0, 3),
    st.integers(0, 3),
    st.booleans(),
)


def _live(number: int) -> st.SearchStrategy[LiveAttempt]:
    causes = st.sampled_from([None, *StopCause])
    return st.builds(
        LiveAttempt,
        number=st.just(number),
        admitted=st.booleans(),
        stop_cause=causes,
        **{k: st.just(v) for k, v in PLACE.items()},
    )


@st.composite
def _answers(draw, state: TaskState) -> LedgerAnswer:
    """Any answer a ledger may give to what this state asked: its numbers never fall."""
    closed = state.closed + draw(st.integers(0, 2))
    if isinstance(state.stage, Enqueuing):
        what = draw(st.sampled_from(["waits", "live", "final"]))
        live = draw(_live(closed + 1)) if what == "live" else None
        final = draw(FINAL) if what == "final" else None
        return Enqueued(closed=closed, live=live, final=final)
    if isinstance(state.stage, Settling):
        mine = draw(st.booleans()) and not state.stage.settle.late
        final = draw(st.one_of(st.none(), FINAL)) if not mine else None
        number = state.stage.settle.number
        return Settled(mine=mine, closed=max(closed, number), final=final)
    assert isinstance(state.stage, Withdrawing)
    answer = draw(st.sampled_from(list(WithdrawAnswer)))
    live = draw(_live(closed + 1)) if answer is WithdrawAnswer.STOPPING else None
    over = (WithdrawAnswer.WITHDRAWN, WithdrawAnswer.ABANDONED, WithdrawAnswer.FINAL)
    return Withdrawn(answer=answer, live=live, final=draw(FINAL) if answer in over else None)


@st.composite
def _histories(draw) -> list[tuple[TaskState, TaskMessage | LedgerAnswer, TaskState]]:
    """A life of up to 25 events, as (before, event, after)."""
    state, effects = begin(a_state(spec=draw(SPECS)), NOW)
    told = []
    for i in range(draw(st.integers(1, 25))):
        what = draw(_answers(state) if effects else MESSAGES)
        chance = draw(st.floats(0, 1, exclude_max=True))
        at = NOW + timedelta(seconds=i)
        after, effects = step(state, Event(what=what, at=at, chance=chance))
        told.append((state, what, after))
        state = after
    return told


@given(_histories())
def test_every_history_keeps_the_checks_and_closed_never_falls(history):
    for before, _, after in history:
        check(after)
        assert after.closed >= before.closed
        assert after.late >= before.late


@given(_histories())
def test_the_end_is_for_ever(history):
    for before, _, after in history:
        if isinstance(before.stage, Done):
            assert after.stage == before.stage
            assert after.model_copy(update={"late": before.late}) == before


@given(_histories())
def test_a_report_of_a_closed_number_changes_nothing_but_its_count(history):
    shown = Placed | Started | Progress | StopRequested
    for before, what, after in history:
        if isinstance(what, shown) and what.number <= before.closed:
            assert after == before.model_copy(update={"late": before.late + 1})


@given(_histories())
def test_budgets_are_charged_once_for_each_attempt_settled(history):
    for before, what, after in history:
        if after.spent == before.spent:
            continue
        assert isinstance(what, Settled)
        assert what.mine
        total = sum(after.spent.of(c) - before.spent.of(c) for c in Cause)
        assert total == 1


@given(_histories())
def test_a_state_survives_json(history):
    state = history[-1][-1]
    assert TaskState.model_validate_json(state.model_dump_json()) == state


@given(_histories())
def test_a_state_written_by_a_newer_version_can_be_read(history):
    state = history[-1][-1]
    written = {**state.model_dump(mode="json"), "field_of_tomorrow": 1}
    assert TaskState.model_validate(written) == state


# --- messages ---------------------------------------------------------------------------------


def _all_members() -> list[Any]:
    unions = (TaskMessage, ClusterMessage, KeeperMessage, AgentMessage)
    members = [m for union in unions for m in get_args(get_args(union)[0])]
    members += [
        m for union in (LedgerOperation, LedgerAnswer) for m in get_args(get_args(union)[0])
    ]
    return [*members, Delivery, DeliveryAnswer, Grant, GrantAnswer, TaskEnvelope, ClusterEnvelope]


st.register_type_strategy(Resources, st.builds(lambda n: Resources(cpu_milli=n), st.integers(0, 9)))


@st.composite
def _any_message(draw):
    kind = draw(st.sampled_from(_all_members()))
    return draw(_of(kind))


def _of(kind: Any) -> st.SearchStrategy[Any]:
    """Messages that need a specification or a machine are given one; the rest is generated."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    if "spec" in kind.model_fields:
        fields["spec"] = st.just(a_spec())
    if "machine" in kind.model_fields and kind.__name__ == "KeeperHello":
        report = {"name": "m1", "instance": "i1", "capacity": {"cpu": 4}}
        fields["machine"] = st.just(MachineReport.model_validate(report))
    if kind.__name__ == "Heartbeat":
        fields["machines"] = st.just(())
    if kind.__name__ == "Delivery":
        fields["orders"] = st.just(())
    if kind.__name__ == "CordonMachines":
        fields["machines"] = st.just(("m1",))
    if kind is TaskEnvelope:
        fields["message"] = MESSAGES
    if kind is ClusterEnvelope:
        fields["message"] = st.builds(DeliveryHint)
    if "ending" in kind.model_fields:
        fields["ending"] = ENDINGS
    for name in ("at", "not_after"):
        if name in kind.model_fields:
            fields[name] = st.just(NOW)
    if "number" in kind.model_fields:
        fields["number"] = NUMBERS
    return st.builds(kind, **fields)


@given(_any_message())
def test_every_message_survives_json_and_tolerates_fields_of_tomorrow(message):
    written = message.model_dump(mode="json")
    assert type(message).model_validate_json(message.model_dump_json()) == message
    assert type(message).model_validate({**written, "field_of_tomorrow": {"a": 1}}) == message


@given(MESSAGES)
def test_an_envelope_is_read_from_plain_json(message):
    raw = TaskEnvelope(sender="agent", seq=3, message=message).model_dump(mode="json")
    read = read_task_envelope(raw)
    assert read is not None
    assert read.message == message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(JSON | st.fixed_dictionaries({"v": st.integers(0, 3), "message": JSON}))
def test_a_misfit_is_told_and_never_raised(raw):
    assert read_task_envelope(raw) is None
    assert read_cluster_envelope(raw) is None


def test_a_message_of_another_version_is_a_misfit():
    raw = TaskEnvelope(message=Expire()).model_dump(mode="json")
    assert read_task_envelope({**raw, "v": 2}) is None
    assert read_task_envelope(raw) is not None


# --- budgets and backoff ----------------------------------------------------------------------


@given(
    st.builds(
        Backoff,
        base_ms=st.integers(1, 10_000),
        factor=st.integers(1, 10),
        cap_ms=st.integers(1, 600_000),
    ),
    st.integers(1, 2_000),
    st.sampled_from([Cause.FAILURE, Cause.LOSS, Cause.REFUSAL]),
    st.floats(0, 1, exclude_max=True),
)
def test_the_wait_is_half_to_all_of_its_step_and_never_zero(plan, ended, cause, chance):
    spent = Spent(failures=ended, losses=ended, refusals=ended)
    wait_ms = backoff(Retries(backoff=plan), spent, cause, chance) / timedelta(milliseconds=1)
    step_ms = min(plan.cap_ms, plan.base_ms * plan.factor ** min(ended - 1, 40))
    assert wait_ms > 0
    assert step_ms * 0.5 <= wait_ms <= max(step_ms, 1)


def test_the_first_step_is_the_base_and_each_further_one_is_multiplied_up_to_the_cap():
    plan = Retries(backoff=Backoff(base_ms=1_000, factor=3, cap_ms=20_000))
    longest = [
        backoff(plan, Spent(failures=n), Cause.FAILURE, 1 - 2**-53).total_seconds()
        for n in (1, 2, 3, 4)
    ]
    assert [round(seconds, 6) for seconds in longest] == [1, 3, 9, 20]


@given(st.integers(0, 5), st.integers(0, 6), st.sampled_from(list(Cause)))
def test_a_budget_of_n_allows_n_retries(budget, ended, cause):
    fields = {"failure": "failures", "loss": "losses"}
    name = fields.get(cause.value, f"{cause.value}s")
    retries, spent = Retries(**{name: budget}), Spent(**{name: ended})
    assert budget_left(retries, spent, cause) == (ended <= budget)
    assert spent.charged(cause).of(cause) == ended + 1


@given(st.builds(Spent, failures=st.integers(0, 3), losses=st.integers(0, 3)))
def test_two_memories_of_spent_budgets_make_the_greater(spent):
    other = Spent(failures=2, refusals=1)
    both = spent.at_least(other)
    assert both == other.at_least(spent)
    assert all(both.of(c) == max(spent.of(c), other.of(c)) for c in Cause)
