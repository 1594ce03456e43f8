"""The whole state machine of a task as text: each stage against each event, from `step` itself.

`python -m tests.domain.lifecycle_table --write` renews the golden text and docs/lifecycle.md.
"""

import argparse
import sys
from pathlib import Path

from domain.attempt import Phase, StopCause
from domain.claims import (
    Enqueue,
    Enqueued,
    Finish,
    LedgerAnswer,
    LedgerOperation,
    Settle,
    Settled,
    WithdrawAnswer,
    Withdrawn,
)
from domain.lifecycle import Event, begin, check, step
from domain.protocol import Cancel, Expire, ReRead, TaskMessage
from domain.stages import (
    Done,
    Offered,
    Pending,
    Resting,
    Running,
    Settling,
    Stage,
    Stopping,
    TaskState,
    Withdrawing,
)
from tests.domain.builders import (
    NOW,
    PLACE,
    a_spec,
    a_state,
    an_outcome,
    exited,
    fenced,
    live,
    lost,
    placed,
    progress,
    refused,
    started,
    stop_requested,
    stopped,
)

GOLDEN = Path(__file__).with_name("lifecycle_table.txt")
PAGE = Path(__file__).parents[2] / "docs" / "lifecycle.md"
MARK = "<!-- written by tests.domain.lifecycle_table -->"
CLOSED = 2
LIVE = 3


def stages() -> dict[str, TaskState]:
    """Each stage once or more; #2 is the last closed number, #3 the live one."""
    spec = a_spec(retries={"failures": 3}, queue_timeout_s=60)
    resting = a_state(spec=spec, closed=CLOSED)
    superseded = Stopping(
        number=LIVE,
        cause=StopCause.SUPERSEDED,
        then=an_outcome(number=CLOSED, exit_code=0, detail="late success"),
        **PLACE,
    )
    at_rest: dict[str, Resting] = {
        "pending": Pending(),
        "offered #3": Offered(number=LIVE, **PLACE),
        "running #3": Running(number=LIVE, **PLACE),
        "stopping #3 preempt": Stopping(number=LIVE, cause=StopCause.PREEMPT, **PLACE),
        "stopping #3 late success": superseded,
    }
    found = {name: resting.model_copy(update={"stage": stage}) for name, stage in at_rest.items()}
    found["enqueuing"] = begin(resting, NOW)[0]
    found["settling #3"] = _after(found["running #3"], exited(LIVE, 1))
    found["withdrawing"] = _after(found["pending"], Expire())
    found["done"] = resting.model_copy(update={"stage": Done(outcome=an_outcome(number=CLOSED))})
    return found


def messages() -> dict[str, TaskMessage]:
    """Each message from outside, about the live attempt and about an old one."""
    return {
        "placed #3": placed(LIVE),
        "placed #2": placed(CLOSED),
        "started #3": started(LIVE),
        "started #2": started(CLOSED),
        "progress #3": progress(LIVE),
        "progress #2": progress(CLOSED),
        "exited #3 code 0": exited(LIVE, 0),
        "exited #3 code 1": exited(LIVE, 1),
        "refused #3": refused(LIVE),
        "stopped #3 preempt": stopped(LIVE, StopCause.PREEMPT, 0),
        "stopped #3 cancel": stopped(LIVE, StopCause.CANCEL, 0),
        "stopped #3 run_timeout": stopped(LIVE, StopCause.RUN_TIMEOUT),
        "lost #3": lost(LIVE),
        "exited #2 code 0": exited(CLOSED, 0),
        "fenced #3": fenced(LIVE),
        "fenced #2": fenced(CLOSED),
        "fenced #1": fenced(1),
        "stop requested #3": stop_requested(LIVE),
        "stop requested #2": stop_requested(CLOSED),
        "expire": Expire(),
        "cancel": Cancel(),
        "cancel --abandon": Cancel(abandon=True),
        "re-read": ReRead(),
    }


def answers() -> dict[str, LedgerAnswer]:
    """Each answer of the ledger."""
    over = an_outcome(Phase.CANCELLED, number=CLOSED)
    return {
        "enqueued: waits": Enqueued(closed=CLOSED),
        "enqueued: #3 is offered": Enqueued(closed=CLOSED, live=live(LIVE, admitted=False)),
        "enqueued: #3 runs": Enqueued(closed=CLOSED, live=live(LIVE)),
        "enqueued: #3 is told to stop": Enqueued(
            closed=CLOSED, live=live(LIVE, stop=StopCause.DRAIN)
        ),
        "enqueued: final": Enqueued(closed=CLOSED, final=over),
        "settled: mine": Settled(mine=True, closed=LIVE),
        "settled: late": Settled(mine=False, closed=LIVE),
        "settled: final": Settled(mine=False, closed=LIVE, final=over),
        "withdrawn: was pending": Withdrawn(answer=WithdrawAnswer.WITHDRAWN, final=over),
        "withdrawn: #3 is stopping": Withdrawn(answer=WithdrawAnswer.STOPPING, live=live(LIVE)),
        "withdrawn: abandoned": Withdrawn(answer=WithdrawAnswer.ABANDONED, final=over),
        "withdrawn: final": Withdrawn(answer=WithdrawAnswer.FINAL, final=over),
        "withdrawn: no effect": Withdrawn(answer=WithdrawAnswer.NO_EFFECT),
    }


def render() -> str:
    """The table: stage, event, next stage, what is asked of the ledger."""
    rows = [("stage", "event", "next stage", "asks the ledger")]
    for stage_name, state in stages().items():
        for event_name, what in [*messages().items(), *answers().items()]:
            rows.append((stage_name, event_name, *outcome_of(state, what)))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.insert(1, "-+-".join("-" * width for width in widths))
    return "\n".join(lines) + "\n"


def outcome_of(state: TaskState, what: TaskMessage | LedgerAnswer) -> tuple[str, str]:
    """Next stage and question of one pair; a pair that cannot happen is `impossible`."""
    try:
        after, effects = step(state, Event(what=what, at=NOW))
    except AssertionError:
        return "impossible", ""
    check(after)
    assert len(effects) <= 1
    unchanged = after == state
    late = ", counted late" if after.late > state.late else ""
    next_stage = "unchanged" if unchanged else _stage(after.stage) + late
    return next_stage, _ask(effects[0]) if effects else ""


def page() -> str:
    """docs/lifecycle.md with the table of today."""
    text = PAGE.read_text()
    head, _, rest = text.partition(MARK)
    _, _, tail = rest.partition(MARK)
    return f"{head}{MARK}\n```text\n{render()}```\n{MARK}{tail}"


def _after(state: TaskState, what: TaskMessage) -> TaskState:
    return step(state, Event(what=what, at=NOW))[0]


def _stage(stage: Stage) -> str:
    match stage:
        case Done(outcome=outcome):
            return outcome.phase
        case Settling():
            return "settling"
        case Withdrawing():
            return "withdrawing"
        case Stopping(number=number, cause=cause, then=then):
            return f"stopping #{number} {cause}" + (", then late success" if then else "")
        case Offered(number=number) | Running(number=number):
            return f"{stage.kind} #{number}"
        case _:
            return stage.kind


def _ask(ask: LedgerOperation) -> str:
    match ask:
        case Enqueue():
            return "enqueue"
        case Settle(number=number, ending=ending, then=then, late=late):
            finish = then.outcome.phase if isinstance(then, Finish) else "requeue"
            return f"settle #{number} {ending.kind}: " + ("release only" if late else finish)
        case _:
            return f"withdraw: {ask.cause}" + (", abandon" if ask.abandon else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew the golden text and the page")
    if parser.parse_args().write:
        GOLDEN.write_text(render())
        PAGE.write_text(page())
    else:
        sys.stdout.write(render())


if __name__ == "__main__":
    main()
