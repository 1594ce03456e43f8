"""Every stage of an attempt against every event: the whole table, as text beside this file.

When it changes on purpose: DRYSTONE_WRITE_GOLDEN=1 writes it anew, and the diff is to be read.
"""

import os
from collections.abc import Callable
from pathlib import Path

from domain.attempt import StopCause
from domain.protocol import Forget, LeaseAnswer
from domain.reasons import Reason
from keeper.attempts import (
    Cleared,
    Connected,
    Event,
    Exit,
    Exited,
    Launched,
    LaunchFailed,
    QuestionDue,
    ShutDown,
    Ticked,
)
from tests.keeper.attempt_builders import LEASE_MS, WAITING, Played, grant_of, start_of, stop_of

GOLDEN = Path(__file__).with_name("attempts_grid.txt")
WRITE = bool(os.environ.get("DRYSTONE_WRITE_GOLDEN"))

START = start_of("t", run_timeout_s=40, grace_s=5)
A = START.attempt


def nothing() -> Played:
    return Played().leased()


def starting() -> Played:
    played = nothing()
    played.do(START)
    return played


def running() -> Played:
    played = starting()
    played.do(Launched(A))
    return played


def waiting_running() -> Played:
    played = nothing()
    played.do(start_of("t", run_timeout_s=70, grace_s=5, **WAITING))
    played.do(Launched(A))
    return played


def frozen() -> Played:
    played = running()
    played.tick(LEASE_MS)
    return played


def stopping() -> Played:
    played = running()
    played.do(stop_of(A, StopCause.PREEMPT, grace_s=5))
    return played


def stopping_and_exited() -> Played:
    played = stopping()
    played.exited(A, 0)
    return played


def killed() -> Played:
    played = stopping()
    played.tick(5_000)
    return played


def leaving() -> Played:
    played = running()
    played.exited(A, 3)
    return played


def ended() -> Played:
    played = leaving()
    played.do(Cleared(A))
    return played


def buried() -> Played:
    played = ended()
    played.do(Forget(attempts=(A,)))
    return played


STAGES = [
    nothing,
    starting,
    running,
    waiting_running,
    frozen,
    stopping,
    stopping_and_exited,
    killed,
    leaving,
    ended,
    buried,
]


def events(played: Played) -> list[tuple[str, Event, int]]:
    """Name, event, and how many milliseconds pass before it."""
    played.do(QuestionDue())
    question, epoch = played.state.questions_asked, played.state.epoch
    return [
        ("start", START, 0),
        ("stop (drain)", stop_of(A, StopCause.DRAIN, grace_s=2), 0),
        ("stop (cancel)", stop_of(A, StopCause.CANCEL, grace_s=2), 0),
        ("launched", Launched(A), 0),
        ("launch failed", LaunchFailed(A, Reason.CANNOT_START), 0),
        ("exited", Exited(A, Exit(0)), 0),
        ("cleared", Cleared(A), 0),
        ("forget", Forget(attempts=(A,)), 0),
        ("answer", LeaseAnswer(question=question, epoch=epoch, remaining_ms=LEASE_MS + 5), 0),
        ("grant, open", grant_of(question, epoch + 1), 0),
        ("grant, closed", grant_of(question, epoch + 1, LEASE_MS, A), 0),
        ("connected", Connected(), 0),
        ("shut down", ShutDown(grace_ms_max=1_000), 0),
        ("45 s pass", Ticked(), 45_000),
        ("80 s pass", Ticked(), 80_000),
    ]


def where(played: Played) -> str:
    if A in played.state.live:
        stage = played.state.live[A].stage
        return repr(stage).replace(", usage=Usage(cpu_ms=0, memory_peak_mib=0, wall_ms=0)", "")
    for name, book in (("ended", played.state.ended), ("buried", played.state.tombstones)):
        if A in book:
            ending = book[A].ending
            why = ending.stop_cause or ending.reason
            return f"{name}: {ending.kind.value} {ending.exit_code} {why}"
    return "unknown"


def shown(effect: object) -> str:
    name = type(effect).__name__
    message = getattr(effect, "message", None)
    return f"{name} {message.kind}" if message is not None else name


def row(stage: Callable[[], Played], name: str, event: Event, pass_ms: int) -> str:
    played = stage()
    events(played)
    played.at(played.now_ms + pass_ms)
    before = len(played.effects)
    try:
        played.do(event)
    except AssertionError:
        return f"  {name:15} cannot happen"
    effects = ", ".join(shown(effect) for effect in played.effects[before:])
    return f"  {name:15} {where(played)}   [{effects}]"


def table() -> str:
    lines = []
    for stage in STAGES:
        lines.append(f"{stage.__name__}: {where(stage())}")
        lines += [row(stage, *event) for event in events(stage())]
        lines.append("")
    return "\n".join(lines)


def test_the_whole_table_is_as_written():
    if WRITE:
        GOLDEN.write_text(table())
    assert table() == GOLDEN.read_text()
    assert not WRITE, "written anew: read the diff"
