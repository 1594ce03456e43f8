"""The one loop of every entity workflow: inbox -> step -> effects, and when to begin a new run.

Handlers only append; the loop alone changes the state. Knows neither tasks nor clusters.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel
from temporalio import workflow

INBOX_EVENTS_MAX = 1_000
"""Messages that may wait while the ledger is away; more are dropped, and asked for again."""
HISTORY_EVENTS_MAX = 2_000
"""A new run begins near here: later costs memory, sooner costs latency."""
EFFECTS_PER_EVENT_MAX = 1_000
"""A longer chain of answers is a bug of ours, and stops the workflow task."""

Message = TypeVar("Message")
State = TypeVar("State")
Event = TypeVar("Event")
"""A message of the inbox, or the answer to an effect."""
Effect = TypeVar("Effect")
_M = TypeVar("_M", covariant=True)


class Letter(Protocol[_M]):
    """An envelope that could be read."""

    @property
    def message(self) -> _M:
        """What it carries."""


class Inbox(Generic[Message]):
    """Messages in the order they came. What cannot be read is counted, never dropped silently."""

    def __init__(
        self,
        read: Callable[[Any], Letter[Message] | None],
        kept: Iterable[Message] = (),
        misfits: int = 0,
        *,
        when_dropped: Message,
    ) -> None:
        """`when_dropped` follows in the place of what a full inbox had to drop: it asks again."""
        self._read = read
        self._waiting: deque[Message] = deque(kept)
        self._when_dropped = when_dropped
        self._dropped = False
        self.misfits = misfits

    def tell(self, raw: Any) -> None:
        """Append a message from outside."""
        letter = self._read(raw)
        if letter is None:
            self.misfits += 1
        else:
            self.put(letter.message)

    def put(self, message: Message) -> None:
        """Append a message of our own."""
        if len(self._waiting) >= INBOX_EVENTS_MAX:
            self._dropped = True
        else:
            self._waiting.append(message)

    def take(self) -> Message:
        """The oldest message."""
        message = self._waiting.popleft()
        if self._dropped:
            self._dropped = False
            self._waiting.append(self._when_dropped)
        return message

    def kept(self) -> tuple[Message, ...]:
        """What goes with continue-as-new."""
        return tuple(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)


class Entity(Generic[State, Event, Effect]):
    """A state, its inbox, and the loop that joins them."""

    def __init__(
        self,
        state: State,
        inbox: Inbox[Any],
        *,
        step: Callable[[State, Event], tuple[State, tuple[Effect, ...]]],
        perform: Callable[[Effect], Awaitable[Event | None]],
        ended: Callable[[State], bool],
        show: Callable[[State], None],
    ) -> None:
        self.state = state
        self.inbox = inbox
        self.history_events_max = HISTORY_EVENTS_MAX
        self._step = step
        self._perform = perform
        self._ended = ended
        self._show = show

    async def drive(self, effects: tuple[Effect, ...]) -> None:
        """Carry out the first effects, then one message after the other.

        Returns when the state has ended, or when the history is long and nothing is half done. The
        state is shown when there is time to look at it, not between a question and its answer.
        """
        await self._carry_out(effects)
        while not self._ended(self.state) and not self._rollover_due():
            if len(self.inbox) == 0:
                self._show(self.state)
            await workflow.wait_condition(lambda: len(self.inbox) > 0 or self._rollover_due())
            if len(self.inbox) > 0:
                await self._advance(self.inbox.take())
        self._show(self.state)

    def _rollover_due(self) -> bool:
        return rollover_due(self.history_events_max)

    async def _advance(self, message: Event) -> None:
        self.state, effects = self._step(self.state, message)
        await self._carry_out(effects)

    async def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        """An answer is the very next event: nothing of the inbox comes between."""
        due = deque(effects)
        for _ in range(EFFECTS_PER_EVENT_MAX):
            if not due:
                return
            answer = await self._perform(due.popleft())
            if answer is not None:
                self.state, more = self._step(self.state, answer)
                due.extend(more)
        raise AssertionError(f"more than {EFFECTS_PER_EVENT_MAX} effects of one event: {due!r}")


_Carried = TypeVar("_Carried", bound=BaseModel)


def carried_over(kind: type[_Carried], carried: Any) -> _Carried | None:
    """What the run before handed over; whatever a starter passed in its place is not ours."""
    if workflow.info().continued_run_id is None:
        return None
    return kind.model_validate(carried)


def rollover_due(events_max: int = HISTORY_EVENTS_MAX) -> bool:
    """True when this run should end and the next begin."""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() >= events_max
