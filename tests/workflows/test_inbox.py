"""The inbox of an entity workflow: order, misfits, and what a full one does."""

from domain.protocol import Cancel, Expire, ReRead, TaskMessage, read_task_envelope
from workflows.entity import INBOX_EVENTS_MAX, Inbox


def an_inbox() -> Inbox[TaskMessage]:
    return Inbox(read_task_envelope, when_dropped=ReRead())


def test_messages_are_taken_in_the_order_they_came() -> None:
    inbox = an_inbox()
    inbox.put(Expire())
    inbox.tell({"v": 1, "message": {"kind": "cancel"}})
    assert [inbox.take(), inbox.take()] == [Expire(), Cancel()]


def test_what_cannot_be_read_is_counted() -> None:
    inbox = an_inbox()
    for raw in (None, "x", {"v": 2, "message": {"kind": "expire"}}, {"v": 1, "message": {}}):
        inbox.tell(raw)
    assert (inbox.misfits, len(inbox)) == (4, 0)


def test_a_full_inbox_asks_again_for_what_it_dropped() -> None:
    inbox = an_inbox()
    for _ in range(INBOX_EVENTS_MAX + 5):
        inbox.put(Expire())
    taken = [inbox.take() for _ in range(len(inbox) + 1)]
    assert taken == [*[Expire()] * INBOX_EVENTS_MAX, ReRead()]
    assert len(inbox) == 0
