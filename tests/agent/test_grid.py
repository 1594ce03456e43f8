"""Every situation of an attempt x every event about it: the table is the documentation."""

from collections.abc import Callable

from agent.admission import HandOver, Record, Report, Stage, ToKeeper, remembered
from agent.state import Effect
from domain.attempt import Ending, EndKind, StopCause
from domain.protocol import Ended
from domain.reasons import Reason
from tests.agent.bench import KEY, Bench, a_bench, a_stop, an_inquiry, an_offer, running

ATTEMPT = f"{KEY}#1"
STOPPED = Ending(kind=EndKind.STOPPED, reason=Reason.PREEMPTED, stop_cause=StopCause.PREEMPT)

# --- situations -----------------------------------------------------------------------------------


def _unknown() -> Bench:
    return a_bench()


def _starting() -> Bench:
    bench = a_bench()
    bench.deliver(an_offer())
    return bench


def _running() -> Bench:
    bench = a_bench()
    running(bench)
    return bench


def _stopping() -> Bench:
    bench = _running()
    bench.deliver(a_stop())
    return bench


def _nobodys() -> Bench:
    bench = _running()
    bench.effects = tuple(bench.wait(2_500))
    bench.refuse_reports()
    return bench


def _closed() -> Bench:
    bench = _running()
    bench.grant(epoch=2, closed=(ATTEMPT,))
    return bench


def _lost() -> Bench:
    bench = _running()
    bench.hang_up()
    bench.wait(70_000)
    bench.grant(epoch=2)
    return bench


def _ended() -> Bench:
    bench = _running()
    bench.ended()
    return bench


def _settled() -> Bench:
    bench = _ended()
    bench.take()
    return bench


def _refused() -> Bench:
    bench = a_bench()
    bench.deliver(an_offer(cpu_milli=5_000))
    return bench


def _buried() -> Bench:
    bench = a_bench()
    bench.deliver(a_stop())
    return bench


SITUATIONS = {
    "unknown": _unknown,
    "starting": _starting,
    "running": _running,
    "stopping": _stopping,
    "nobody's": _nobodys,
    "closed": _closed,
    "lost": _lost,
    "ended": _ended,
    "settled": _settled,
    "refused": _refused,
    "buried": _buried,
}

# --- events ---------------------------------------------------------------------------------------


def _fence(bench: Bench) -> None:
    if bench.state.machines["m1"].connection is not None:
        bench.hang_up()
    bench.effects = tuple(bench.wait(70_000))


def _come_back(bench: Bench, instance: str, live: tuple[str, ...]) -> None:
    bench.hello(instance=instance, live=live)
    effects = list(bench.effects)
    bench.ask()
    bench.effects = (*effects, *bench.effects)


def _word(order: Callable[[], object], epoch: int | None = None) -> Callable[[Bench], str]:
    return lambda bench: bench.word(order(), epoch)  # type: ignore[arg-type]


EVENTS: dict[str, Callable[[Bench], object]] = {
    "offer": _word(an_offer),
    "offer of another epoch": _word(an_offer, epoch=99),
    "a newer number": _word(lambda: an_offer(number=2)),
    "stop": _word(a_stop),
    "cancel": _word(lambda: a_stop(cause=StopCause.CANCEL)),
    "inquiry": _word(an_inquiry),
    "keeper: started": lambda bench: bench.started(ATTEMPT),
    "keeper: exited": lambda bench: bench.ended(ATTEMPT),
    "keeper: stopped": lambda bench: bench.ended(ATTEMPT, STOPPED),
    "same keeper, live": lambda bench: _come_back(bench, "k1", (ATTEMPT,)),
    "same keeper, not live": lambda bench: _come_back(bench, "k1", ()),
    "new keeper": lambda bench: _come_back(bench, "k2", ()),
    "grant that closes it": lambda bench: str(
        bench.grant(epoch=bench.state.epoch + 1, closed=(ATTEMPT,)).ended
    ),
    "its machine is fenced": _fence,
    "agent restarts": lambda bench: bench.start(),
}

# --- the table ------------------------------------------------------------------------------------


def _where(bench: Bench) -> str:
    live = bench.state.live.get(ATTEMPT)
    known = remembered(bench.state, ATTEMPT)
    words = [] if live is None else [str(live.stage)]
    if live is not None and live.cause is not None and live.stage is Stage.STOPPING:
        words.append(f"({live.cause})")
    if known is not None:
        words.append(str(known.ending.kind) + ("" if known.acknowledged else "!"))
    return " ".join(words) or "-"


def _did(effects: tuple[Effect, ...]) -> str:
    words = []
    for effect in effects:
        match effect:
            case Report(attempt=attempt, message=Ended() as ended):
                number = attempt.rpartition("#")[2]
                words.append(
                    f"report {ended.ending.kind}" + ("" if number == "1" else f" #{number}")
                )
            case Report():
                words.append("report started")
            case HandOver():
                words.append("hand over")
            case ToKeeper(message=message):
                closed = getattr(message, "closed", ())
                words.append(message.kind + (" closing" if closed else ""))
            case Record():
                pass
            case _:
                pass
    return ", ".join(words) or "-"


def table() -> str:
    """One line for each pair."""
    lines = []
    for situation, make in SITUATIONS.items():
        lines.append(f"{situation}: {_where(make())}")
        for event, happen in EVENTS.items():
            bench = make()
            bench.effects = ()
            word = happen(bench)
            did, where = _did(bench.effects), _where(bench)
            said = f" [{word}]" if isinstance(word, str) else ""
            lines.append(f"  {event}{said} -> {where} | {did}")
    return "\n".join(lines)


TABLE = """
unknown: -
  offer [admitted] -> starting | start
  offer of another epoch [stale] -> - | -
  a newer number [admitted] -> - | start
  stop [taken] -> stopped! | report stopped
  cancel [taken] -> stopped! | report stopped
  inquiry [taken] -> lost! | report lost
  keeper: started -> - | -
  keeper: exited -> exited! | report exited, forget
  keeper: stopped -> stopped! | report stopped, forget
  same keeper, live -> running | grant
  same keeper, not live -> - | grant
  new keeper -> - | grant
  grant that closes it [()] -> - | grant
  its machine is fenced -> - | -
  agent restarts -> - | -
starting: starting
  offer [admitted] -> starting | -
  offer of another epoch [admitted] -> starting | -
  a newer number [refused agent_no_room] -> starting | report refused #2
  stop [taken] -> stopping (preempt) | stop
  cancel [taken] -> stopping (cancel) | stop
  inquiry [taken] -> starting | -
  keeper: started -> running | -
  keeper: exited -> exited! | report exited, forget
  keeper: stopped -> stopped! | report stopped, forget
  same keeper, live -> starting | grant, start
  same keeper, not live -> starting | grant, start
  new keeper -> lost! | report lost, grant
  grant that closes it [()] -> remnant | stop, grant closing
  its machine is fenced -> remnant lost! | report lost
  agent restarts -> starting | -
running: running
  offer [admitted] -> running | -
  offer of another epoch [admitted] -> running | -
  a newer number [refused agent_no_room] -> running | report refused #2
  stop [taken] -> stopping (preempt) | stop
  cancel [taken] -> stopping (cancel) | stop
  inquiry [taken] -> running | -
  keeper: started -> running | -
  keeper: exited -> exited! | report exited, forget
  keeper: stopped -> stopped! | report stopped, forget
  same keeper, live -> running | grant
  same keeper, not live -> running | grant
  new keeper -> lost! | report lost, grant
  grant that closes it [()] -> remnant | stop, grant closing
  its machine is fenced -> remnant lost! | report started, report lost
  agent restarts -> running | -
stopping: stopping (preempt)
  offer [admitted] -> stopping (preempt) | -
  offer of another epoch [admitted] -> stopping (preempt) | -
  a newer number [refused agent_no_room] -> stopping (preempt) | report refused #2
  stop [taken] -> stopping (preempt) | stop
  cancel [taken] -> stopping (cancel) | stop
  inquiry [taken] -> stopping (preempt) | -
  keeper: started -> stopping (preempt) | -
  keeper: exited -> exited! | report exited, forget
  keeper: stopped -> stopped! | report stopped, forget
  same keeper, live -> stopping (preempt) | stop, grant
  same keeper, not live -> stopping (preempt) | stop, grant
  new keeper -> stopped! | report stopped, grant
  grant that closes it [()] -> remnant | stop, grant closing
  its machine is fenced -> remnant stopped! | report stopped
  agent restarts -> stopping (preempt) | -
nobody's: stopping (workflow_gone)
  offer [admitted] -> stopping (workflow_gone) | -
  offer of another epoch [admitted] -> stopping (workflow_gone) | -
  a newer number [refused agent_no_room] -> stopping (workflow_gone) | report refused #2
  stop [taken] -> stopping (workflow_gone) | stop
  cancel [taken] -> stopping (cancel) | stop
  inquiry [taken] -> stopping (workflow_gone) | -
  keeper: started -> stopping (workflow_gone) | -
  keeper: exited -> exited! | report exited, forget
  keeper: stopped -> stopped! | report stopped, forget
  same keeper, live -> stopping (workflow_gone) | stop, grant
  same keeper, not live -> stopping (workflow_gone) | stop, grant
  new keeper -> stopped! | report stopped, grant
  grant that closes it [()] -> remnant | stop, grant closing
  its machine is fenced -> remnant stopped! | report stopped
  agent restarts -> stopping (workflow_gone) | -
closed: remnant
  offer [admitted] -> remnant | -
  offer of another epoch [admitted] -> remnant | -
  a newer number [admitted] -> remnant | start
  stop [taken] -> remnant | stop
  cancel [taken] -> remnant | stop
  inquiry [taken] -> remnant | -
  keeper: started -> remnant | -
  keeper: exited -> exited! | report exited, forget
  keeper: stopped -> stopped! | report stopped, forget
  same keeper, live -> remnant | stop, grant closing
  same keeper, not live -> remnant | stop, grant closing
  new keeper -> lost! | report lost, grant
  grant that closes it [()] -> remnant | stop, grant closing
  its machine is fenced -> remnant | -
  agent restarts -> remnant | -
lost: remnant lost!
  offer [admitted] -> remnant lost! | -
  offer of another epoch [admitted] -> remnant lost! | -
  a newer number [refused unreachable] -> remnant lost! | report refused #2
  stop [taken] -> remnant lost! | report lost
  cancel [taken] -> remnant lost! | report lost
  inquiry [taken] -> remnant lost! | report lost
  keeper: started -> remnant lost! | -
  keeper: exited -> exited! | report exited, forget
  keeper: stopped -> lost! | forget
  same keeper, live -> remnant lost! | stop, grant closing
  same keeper, not live -> remnant lost! | stop, grant closing
  new keeper -> lost! | grant
  grant that closes it [()] -> remnant lost! | -
  its machine is fenced -> remnant lost! | -
  agent restarts -> remnant lost! | report lost
ended: exited!
  offer [admitted] -> exited! | -
  offer of another epoch [admitted] -> exited! | -
  a newer number [admitted] -> exited! | start
  stop [taken] -> exited! | report exited
  cancel [taken] -> exited! | report exited
  inquiry [taken] -> exited! | report exited
  keeper: started -> exited! | -
  keeper: exited -> exited! | forget
  keeper: stopped -> exited! | forget
  same keeper, live -> remnant exited! | stop, grant closing
  same keeper, not live -> exited! | grant
  new keeper -> exited! | grant
  grant that closes it [('blue/t1#1',)] -> exited! | grant
  its machine is fenced -> exited! | -
  agent restarts -> exited! | report exited
settled: exited
  offer [admitted] -> exited | -
  offer of another epoch [admitted] -> exited | -
  a newer number [admitted] -> exited | start
  stop [taken] -> exited! | report exited
  cancel [taken] -> exited! | report exited
  inquiry [taken] -> exited! | report exited
  keeper: started -> exited | -
  keeper: exited -> exited | forget
  keeper: stopped -> exited | forget
  same keeper, live -> remnant exited | stop, grant closing
  same keeper, not live -> exited | grant
  new keeper -> exited | grant
  grant that closes it [('blue/t1#1',)] -> exited | grant
  its machine is fenced -> exited | -
  agent restarts -> exited | -
refused: refused!
  offer [refused agent_no_room] -> refused! | -
  offer of another epoch [refused agent_no_room] -> refused! | -
  a newer number [admitted] -> refused! | start
  stop [taken] -> refused! | report refused
  cancel [taken] -> refused! | report refused
  inquiry [taken] -> refused! | report refused
  keeper: started -> refused! | -
  keeper: exited -> refused! | forget
  keeper: stopped -> refused! | forget
  same keeper, live -> remnant refused! | stop, grant closing
  same keeper, not live -> refused! | grant
  new keeper -> refused! | grant
  grant that closes it [('blue/t1#1',)] -> refused! | grant
  its machine is fenced -> refused! | -
  agent restarts -> refused! | report refused
buried: stopped!
  offer [refused agent_stop_came_first] -> stopped! | -
  offer of another epoch [refused agent_stop_came_first] -> stopped! | -
  a newer number [admitted] -> stopped! | start
  stop [taken] -> stopped! | report stopped
  cancel [taken] -> stopped! | report stopped
  inquiry [taken] -> stopped! | report stopped
  keeper: started -> stopped! | -
  keeper: exited -> stopped! | forget
  keeper: stopped -> stopped! | forget
  same keeper, live -> remnant stopped! | stop, grant closing
  same keeper, not live -> stopped! | grant
  new keeper -> stopped! | grant
  grant that closes it [('blue/t1#1',)] -> stopped! | grant
  its machine is fenced -> stopped! | -
  agent restarts -> stopped! | report stopped
"""


def test_the_whole_table() -> None:
    assert table() == TABLE.strip()
