"""The agent's word on what the scheduler orders: offers, stops, inquiries and grants."""

from dataclasses import replace

from agent.endings import close, keep, lost, start_of, stop_live, stopped, told_again
from agent.entries import Admitted, Buried, EpochGranted
from agent.machines import grant_keeper
from agent.state import (
    TOMBSTONES_MAX,
    Answer,
    Effects,
    Event,
    Machine,
    Record,
    Remembered,
    Stage,
    State,
    Step,
    ToKeeper,
    Unaccounted,
    added,
    leased,
    new_attempt,
    ready,
    remembered,
    with_machine,
)
from agent.table import Table
from domain.attempt import Ending, EndKind
from domain.ids import attempt_id
from domain.protocol import (
    Delivery,
    DeliveryAnswer,
    Grant,
    GrantAnswer,
    Inquiry,
    Offer,
    Order,
    OrderAnswer,
    StopOrder,
)
from domain.reasons import Reason

_TAKEN = "taken"


def deliver(state: State, delivery: Delivery, event: Event) -> Step:
    """One answer per order, but for those that cannot be answered yet: they come again."""
    answers: list[OrderAnswer] = []
    effects: Effects = ()
    for order in delivery.orders:
        state, more, answer = _take(state, order, delivery.epoch, event)
        effects += more
        answers += [] if answer is None else [answer]
    answered = DeliveryAnswer(instance=state.instance, epoch=delivery.epoch, answers=tuple(answers))
    return state, (*effects, Answer(answered))


def _take(state: State, order: Order, epoch: int, event: Event) -> "_Answered":
    match order:
        case Offer():
            return _offered(state, order, epoch, event)
        case StopOrder():
            return _stop(state, order, event)
        case Inquiry():
            return _inquire(state, order, event)


# --- offers ---------------------------------------------------------------------------------------

_Answered = tuple[State, Effects, OrderAnswer | None]


def _offered(state: State, offer: Offer, epoch: int, event: Event) -> _Answered:
    attempt = attempt_id(offer.key, offer.number)
    known = remembered(state, attempt)
    if attempt in state.tombstones:
        return state, (), _refused(offer, Reason.AGENT_STOP_CAME_FIRST)
    if known is not None and known.ending.kind is EndKind.REFUSED:
        return state, (), _refused(offer, known.ending.reason)
    if known is not None or attempt in state.live:
        return state, (), _answer(offer, "admitted")
    if epoch != state.epoch or attempt in state.closed:
        return state, (), _answer(offer, "stale")
    if not leased(state, event.now_ms):
        return _refuse(state, offer, Reason.AGENT_NO_LEASE, "", event)
    machine = state.machines.get(offer.machine)
    if machine is None:
        if _too_young(state, event):
            return state, (), None
        return _refuse(state, offer, Reason.AGENT_UNKNOWN_MACHINE, offer.machine, event)
    if not ready(state, machine, event.now_ms):
        return _not_ready(state, offer, machine, event)
    return _admit(state, offer, machine, event)


def _not_ready(state: State, offer: Offer, machine: Machine, event: Event) -> _Answered:
    """A keeper that is just being restarted is worth a moment; a refusal would cool the shape."""
    silent_ms = event.now_ms - machine.heard_ms
    if silent_ms < state.terms.suspect_ms and not machine.fenced:
        return state, (), None
    detail = f"the keeper of {offer.machine} has been silent for {silent_ms // 1_000} s"
    return _refuse(state, offer, Reason.UNREACHABLE, detail, event)


def _admit(state: State, offer: Offer, machine: Machine, event: Event) -> _Answered:
    """Against what really is free: everything that holds room counts, however it stands."""
    other = state.by_task.get(offer.key)
    if other is not None:
        return _refuse(state, offer, Reason.AGENT_NO_ROOM, f"{other} has not ended", event)
    if machine.unsized:
        detail = f"{offer.machine} runs an attempt of unknown size"
        return _refuse(state, offer, Reason.AGENT_NO_ROOM, detail, event)
    wanted = machine.used.plus(offer.spec.resources)
    if not wanted.fits(machine.report.capacity):
        short = wanted.short_of(machine.report.capacity)
        detail = "short of " + ", ".join(f"{name} {by}" for name, by in sorted(short.items()))
        return _refuse(state, offer, Reason.AGENT_NO_ROOM, detail, event)
    attempt = new_attempt(offer.key, offer.number, machine.report, offer.spec)
    entry = Admitted(
        key=offer.key,
        number=offer.number,
        machine=offer.machine,
        instance=attempt.instance,
        spec=offer.spec,
    )
    start = ToKeeper(offer.machine, start_of(state, attempt))
    return added(state, attempt), (Record(entry), start), _answer(offer, "admitted")


def _refuse(state: State, offer: Offer, reason: Reason, detail: str, event: Event) -> _Answered:
    record = Remembered(
        id=attempt_id(offer.key, offer.number),
        key=offer.key,
        number=offer.number,
        machine=offer.machine,
        ending=Ending(kind=EndKind.REFUSED, reason=reason, detail=detail),
        at=event.at,
    )
    state, effects = keep(state, record)
    return state, effects, _refused(offer, reason)


def _refused(offer: Offer, reason: Reason | None) -> OrderAnswer:
    return OrderAnswer(
        key=offer.key, number=offer.number, order="offer", answer="refused", reason=reason
    )


def _answer(order: Offer | StopOrder | Inquiry, word: str) -> OrderAnswer:
    return OrderAnswer.model_validate(
        {"key": order.key, "number": order.number, "order": order.kind, "answer": word}
    )


# --- stops and inquiries --------------------------------------------------------------------------


def _stop(state: State, order: StopOrder, event: Event) -> _Answered:
    """Good at any epoch: it names one number, and ends nothing else."""
    attempt_id_ = attempt_id(order.key, order.number)
    taken = _answer(order, _TAKEN)
    attempt = state.live.get(attempt_id_)
    known = remembered(state, attempt_id_)
    if attempt is not None and attempt.stage is Stage.REMNANT:
        state, effects = close(state, attempt, state.machines[attempt.machine])
    elif attempt is not None:
        state, effects = stop_live(state, attempt, order.cause, order.grace_s)
    else:
        effects = ()
    if known is not None:
        state, more = told_again(state, known)
        effects += more
    if known is not None or attempt is not None:
        return state, effects, taken
    if _may_run_unknown(state, order.machine, event):
        doubt = Unaccounted(order.machine, order.cause)
        state, effects = _bury(state, attempt_id_)
        return _doubt(state, attempt_id_, doubt), effects, taken
    state, effects = _bury(state, attempt_id_)
    state, more = keep(state, _never_here(order, stopped(order.cause), event))
    return state, (*effects, *more), taken


def _inquire(state: State, order: Inquiry, event: Event) -> _Answered:
    attempt = attempt_id(order.key, order.number)
    taken = _answer(order, _TAKEN)
    known = remembered(state, attempt)
    if known is not None:
        state, effects = told_again(state, known)
        return state, effects, taken
    if attempt in state.live:
        return state, (), taken
    if _may_run_unknown(state, order.machine, event):
        return _doubt(state, attempt, Unaccounted(order.machine)), (), taken
    state, effects = keep(state, _never_here(order, lost(Reason.ATTEMPT_UNKNOWN), event))
    return state, effects, taken


def _never_here(order: StopOrder | Inquiry, ending: Ending, event: Event) -> Remembered:
    return Remembered(
        id=attempt_id(order.key, order.number),
        key=order.key,
        number=order.number,
        machine=order.machine,
        ending=ending,
        at=event.at,
    )


def _bury(state: State, attempt: str) -> Step:
    tombstones = state.tombstones
    if len(tombstones) >= TOMBSTONES_MAX:
        tombstones = tombstones.without(next(iter(tombstones)))
    return replace(state, tombstones=tombstones.put(attempt, None)), (
        Record(Buried(attempt=attempt)),
    )


# --- what a young journal cannot know -------------------------------------------------------------


def _too_young(state: State, event: Event) -> bool:
    """This process began the journal, so keepers may exist that it has not heard of yet."""
    return state.amnesiac and event.now_ms - state.born_ms < state.terms.fence_ms


def _may_run_unknown(state: State, machine: str, event: Event) -> bool:
    """A keeper that has said hello has told us all it runs; one that has not may run anything."""
    known = state.machines.get(machine)
    return known is None and _too_young(state, event)


def _doubt(state: State, attempt: str, doubt: Unaccounted) -> State:
    return replace(state, unaccounted=state.unaccounted.put(attempt, doubt))


# --- grants ---------------------------------------------------------------------------------------


def grant(state: State, grant: Grant, event: Event) -> Step:
    """Begins a lease, once per epoch: repeated, it can add closed numbers and revive nothing.

    The lease counts from the sending of the last acknowledged heartbeat, not from the grant's
    arrival: a grant that was held up on its way begins a lease that has passed already.
    """
    if grant.epoch < max(state.epoch, state.epoch_seen):
        return state, (Answer(GrantAnswer(instance=state.instance, epoch=state.epoch)),)
    effects: Effects = ()
    if grant.epoch > state.epoch:
        state, effects = _new_epoch(state, grant)
    state = replace(state, closed=state.closed | frozenset(grant.closed))
    ended: list[str] = []
    for attempt in grant.closed:
        live = state.live.get(attempt)
        if live is not None:
            state, more = close(state, live, state.machines[live.machine])
            effects += more
        elif remembered(state, attempt) is None and _too_young(state, event):
            state = _doubt(state, attempt, Unaccounted(machine=""))
        else:
            ended.append(attempt)
    for name in state.machines:
        state, more = grant_keeper(state, state.machines[name], event)
        effects += more
    answer = GrantAnswer(instance=state.instance, epoch=state.epoch, ended=tuple(ended))
    return state, (*effects, Answer(answer))


def _new_epoch(state: State, grant: Grant) -> Step:
    since_ms = state.born_ms if state.beaten_ms is None else state.beaten_ms
    state = replace(
        state,
        epoch=grant.epoch,
        epoch_seen=grant.epoch,
        lease_until_ms=since_ms + state.terms.lease_ms,
        tombstones=Table(),
        closed=frozenset(),
    )
    for machine in state.machines.values():
        # The scheduler may know nothing of them: a new ledger, or another life of this one.
        state = with_machine(state, machine, news=True)
    return state, (Record(EpochGranted(epoch=grant.epoch)),)
