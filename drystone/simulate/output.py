"""The placements file: written, and read back by whoever checks it."""

import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path

from drystone.simulate.cells import MS_PER_S, Columns, Row, rows
from drystone.simulate.records import Outcome, Placement

COLUMNS = (
    *("task_id", "attempt", "machine_id", "gpu_devices", "placed_s", "ended_s"),
    *("outcome", "reason"),
)


class NoOutputError(Exception):
    """A file could not be written there."""


def can_write(option: str, path: Path) -> None:
    """NoOutputError now rather than after a long run, in the words of the option that named it."""
    folder = path.parent
    if path.is_dir():
        raise NoOutputError(f"{option}: {path} is a folder; name a file")
    if not folder.is_dir():
        raise NoOutputError(f"{option}: {path} cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise NoOutputError(f"{option}: {path} cannot be written: {folder} is not yours to write")


def write_placements(path: Path, placements: Iterable[Placement]) -> None:
    """Equal placements give equal bytes. Takes the place of the file only when it is whole."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in placements:
        devices = "|".join(map(str, one.gpu_devices))
        times = (seconds(one.placed_ms), seconds(one.ended_ms))
        writer.writerow(
            (one.task_id, one.attempt, one.machine_id, devices, *times, one.outcome, one.reason)
        )
    beside = path.with_name(path.name + ".part")
    beside.write_text(text.getvalue(), encoding="utf-8", newline="")
    beside.replace(path)


def read_placements(path: Path) -> list[Placement]:
    """The lines of a placements file."""
    found = []
    for row in rows(path, Columns(known=COLUMNS, required=COLUMNS)):
        outcome = row.needed("outcome")
        if outcome not in set(Outcome):
            row.fail(f"outcome must be one of {', '.join(Outcome)}, not {outcome!r}")
        found.append(
            Placement(
                task_id=row.needed("task_id"),
                attempt=row.quantity("attempt"),
                machine_id=row.text("machine_id"),
                gpu_devices=_devices(row),
                placed_ms=row.milliseconds("placed_s"),
                ended_ms=row.milliseconds("ended_s"),
                outcome=Outcome(outcome),
                reason=row.text("reason"),
            )
        )
    return found


def _devices(row: Row) -> tuple[int, ...]:
    written = row.names("gpu_devices")
    if not all(one.isascii() and one.isdecimal() for one in written):
        row.fail(f"gpu_devices must be numbers such as 0|3, not {'|'.join(written)!r}")
    return tuple(map(int, written))


def seconds(at_ms: int | None) -> str:
    """Milliseconds as seconds without needless zeros: 1500 -> 1.5; None -> empty."""
    if at_ms is None:
        return ""
    whole, rest = divmod(at_ms, MS_PER_S)
    return f"{whole}.{rest:03}".rstrip("0").rstrip(".") if rest else str(whole)
