"""The work of the demo: files, one task each, and the truth that results are checked against."""

import gzip
import hashlib
import random
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from domain.attempt import Phase
from domain.errors import DrystoneError, NeverFitsError
from domain.reasons import Reason
from domain.views import TaskView

TEAM = "demo"
SEED = 20_261_130
FLAKY_EVERY = 20
_WORDS = ("stone", "wall", "field", "rain", "sheep", "gate", "hill", "moss", "lichen", "wind")

# The system's own tools do the work. A file appears under its name only when it is complete.
_PACK = """
set -e
[ "$DRYSTONE_ATTEMPT" -gt "$FAIL_FIRST" ] || { echo "not this time" >&2; exit 9; }
sha256sum < "$IN" | cut -d' ' -f1 > "$OUT.sha256.$DRYSTONE_ATTEMPT"
gzip -9 -n < "$IN" > "$OUT.gz.$DRYSTONE_ATTEMPT"
mv "$OUT.sha256.$DRYSTONE_ATTEMPT" "$OUT.sha256"
mv "$OUT.gz.$DRYSTONE_ATTEMPT" "$OUT.gz"
echo "packed $(basename "$IN") in attempt $DRYSTONE_ATTEMPT"
"""


class Kind(StrEnum):
    """What is meant to happen to a task."""

    PLAIN = "checksum and compress"
    FLAKY = "the same, failing at first"
    SLOW = "longer than its time limit"
    CANCELLED = "cancelled while it runs"
    HUGE = "larger than any machine"


@dataclass(frozen=True)
class Piece:
    """One task of the demo."""

    kind: Kind
    body: dict[str, Any]
    source: Path | None = None
    target: Path | None = None

    @property
    def id(self) -> str:
        """The task's id."""
        return str(self.body["id"])


def pieces(folder: Path, files: int) -> list[Piece]:
    """Write the files and say what to do with each; three more tasks go wrong on purpose."""
    chance = random.Random(SEED)
    (folder / "in").mkdir(parents=True)
    (folder / "out").mkdir()
    work = [_packing(folder, number, chance) for number in range(files)]
    work.append(Piece(Kind.SLOW, _body("slow", ["sleep", "60"], run_timeout_s=2, grace_s=1)))
    work.append(Piece(Kind.CANCELLED, _body("cancelled", ["sleep", "600"], grace_s=1)))
    huge = _body("huge", ["true"], resources={"cpu": "100000", "memory": "1Gi"})
    return [*work, Piece(Kind.HUGE, huge)]


def _packing(folder: Path, number: int, chance: random.Random) -> Piece:
    name = f"file-{number:04}"
    source, target = folder / "in" / f"{name}.txt", folder / "out" / name
    words = (chance.choice(_WORDS) for _ in range(chance.randrange(200, 12_000)))
    source.write_text(" ".join(words) + f" {number}\n")
    flaky = number % FLAKY_EVERY == FLAKY_EVERY - 1
    body = _body(
        name,
        ["sh", "-c", _PACK],
        env={"IN": str(source), "OUT": str(target), "FAIL_FIRST": "1" if flaky else "0"},
        retries={"failures": 2, "backoff": {"base_ms": 200}},
    )
    return Piece(Kind.FLAKY if flaky else Kind.PLAIN, body, source, target)


def _body(name: str, command: list[str], **more: Any) -> dict[str, Any]:
    small = {"cpu": "50m", "memory": "16Mi"}
    return {"team": TEAM, "id": name, "command": command, "resources": small, **more}


def wrong_with(piece: Piece, end: TaskView | DrystoneError) -> str:
    """What differs from the truth; empty when nothing does."""
    if piece.kind is Kind.HUGE:
        refused = isinstance(end, NeverFitsError) and Reason.NO_ROOM_CPU in end.lost
        return "" if refused else f"was not refused: {end}"
    if isinstance(end, DrystoneError):
        return str(end)
    reason = end.outcome.reason if end.outcome else None
    match piece.kind:
        case Kind.SLOW:
            right = end.phase is Phase.FAILED and reason is Reason.RUN_TIMEOUT
        case Kind.CANCELLED:
            right = end.phase is Phase.CANCELLED and reason is Reason.CANCELLED_BY_USER
        case _:
            right = end.phase is Phase.SUCCEEDED
            if right:
                return _wrong_file(piece, end)
    return "" if right else f"is {end.phase}: {end.outcome}"


def _wrong_file(piece: Piece, end: TaskView) -> str:
    assert piece.source is not None
    assert piece.target is not None
    if piece.kind is Kind.FLAKY and end.number < 2:
        return "was meant to fail at first"
    truth = piece.source.read_bytes()
    try:
        told = piece.target.with_suffix(".sha256").read_text().strip()
        packed = gzip.decompress(piece.target.with_suffix(".gz").read_bytes())
    except (OSError, EOFError) as error:
        return str(error)
    if told != hashlib.sha256(truth).hexdigest():
        return "the checksum is wrong"
    return "" if packed == truth else "the compressed file holds something else"
