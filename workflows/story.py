"""What the Web UI shows of a workflow: Markdown made of its state. Decides nothing."""

from datetime import datetime

from domain.attempt import AttemptRecord, Ending
from domain.cluster import ClusterState
from domain.stages import (
    Done,
    Offered,
    Running,
    Settling,
    Stopping,
    TaskState,
    Withdrawing,
    phase_of,
)

CELL_CHARS_MAX = 120


def task_story(state: TaskState, misfits: int) -> str:
    """Team, phase, place and attempts of a task."""
    spec = state.spec
    lines = [
        f"**{phase_of(state.stage)}** · team `{spec.team}` · priority {spec.priority.name}",
        *_place(state),
        *_outcome(state),
    ]
    if state.attempts:
        lines += ["", "| attempt | cluster | machine | started | ended | outcome |"]
        lines += ["|---|---|---|---|---|---|", *(_row(one) for one in state.attempts)]
    if state.late:
        lines += ["", f"Late reports of closed attempts: {state.late}"]
    if misfits:
        lines += ["", f"Messages that could not be read: {misfits}"]
    return "\n".join(lines)


def cluster_story(state: ClusterState, misfits: int) -> str:
    """Reach, lease and deliveries of a cluster."""
    lines = [
        f"**{state.reach}** · epoch {state.epoch} · agent `{state.instance or 'none yet'}`",
        f"Lease {'granted' if state.granted else 'not granted'} · heartbeats {state.heartbeats}",
        f"Silent slices {state.silent_slices} of {state.terms.slices_needed}",
        f"Last contact: {_instant(state.heard_at)}",
    ]
    if state.strangers:
        lines.append(f"Heartbeats of earlier agent processes: {state.strangers}")
    if misfits:
        lines.append(f"Messages that could not be read: {misfits}")
    return "\n\n".join(lines)


def _place(state: TaskState) -> list[str]:
    stage = state.stage.back if isinstance(state.stage, Settling | Withdrawing) else state.stage
    if not isinstance(stage, Offered | Running | Stopping):
        return []
    place = f"Attempt {stage.number} on cluster `{stage.cluster}`, machine `{stage.machine}`"
    if isinstance(stage, Stopping):
        place += f", told to stop: {stage.cause}"
    if isinstance(stage, Running) and stage.note:
        place += f": {_cell(stage.note)}"
    return ["", place]


def _outcome(state: TaskState) -> list[str]:
    if not isinstance(state.stage, Done):
        return []
    outcome = state.stage.outcome
    words = [] if outcome.reason is None else [f"reason {outcome.reason}"]
    words += [] if outcome.exit_code is None else [f"exit code {outcome.exit_code}"]
    words += [_cell(outcome.detail)] if outcome.detail else []
    return ["", " · ".join(words)] if words else []


def _row(record: AttemptRecord) -> str:
    cells = (
        str(record.number),
        record.cluster,
        record.machine,
        _instant(record.started_at),
        _instant(record.ended_at),
        _ending(record.ending),
    )
    return f"| {' | '.join(cells)} |"


def _ending(ending: Ending | None) -> str:
    if ending is None:
        return ""
    words = [ending.kind.value]
    words += [] if ending.exit_code is None else [str(ending.exit_code)]
    words += [] if ending.reason is None else [ending.reason.value]
    words += [] if ending.stop_cause is None else [f"({ending.stop_cause.value})"]
    return " ".join(words)


def _instant(at: datetime | None) -> str:
    return "" if at is None else at.isoformat(sep=" ", timespec="seconds")


def _cell(text: str) -> str:
    """One line that cannot break out of a table or a code span."""
    flat = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    return flat if len(flat) <= CELL_CHARS_MAX else flat[: CELL_CHARS_MAX - 1] + "…"
