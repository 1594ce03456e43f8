"""Tasks that tell on the scheduler: each attempt locks its task's file and signs its number.

An attempt that finds the lock held saw another attempt of its task alive. A number signed twice was
run twice. Both are written down for the test to find. The lock is inherited by the attempt's
children, so a leftover tree holds it too.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

# Descriptor 9 stays open in every child. Nothing here needs more than sh and flock.
_ATTEMPT = """
exec 9>"$LOCKS/$NAME"
if ! flock -n 9; then echo "$NAME attempt $DRYSTONE_ATTEMPT" >> "$LOCKS/../held"; exit 97; fi
echo "$DRYSTONE_ATTEMPT" >> "$LOCKS/../signed/$NAME"
sleep "$SECONDS_TO_RUN" &
wait $!
[ "$(wc -l < "$LOCKS/../signed/$NAME")" -gt "$FAIL_FIRST" ] || exit 3
exit "$CODE"
"""


@dataclass(frozen=True)
class Kind:
    """One way a task may go, and the end that is right for it."""

    name: str
    phase: str
    seconds: float
    code: int = 0
    fail_first: int = 0
    retries: int = 0
    run_timeout_s: int | None = None


KINDS = (
    Kind("quick", "SUCCEEDED", 0.05),
    Kind("short", "SUCCEEDED", 2),
    Kind("long", "SUCCEEDED", 20),
    Kind("wrong", "FAILED", 1, code=5),
    Kind("flaky", "SUCCEEDED", 1, fail_first=2, retries=2),
    Kind("slow", "FAILED", 600, run_timeout_s=15),
)


class Workload:
    """Makes submissions, and reads what their attempts left behind."""

    def __init__(self, folder: Path, rng: Random) -> None:
        self.folder, self.rng = folder, rng
        self.kinds: dict[str, Kind] = {}
        for part in ("locks", "signed"):
            (folder / part).mkdir(parents=True, exist_ok=True)

    def task(self, name: str, kind: Kind | None = None) -> dict[str, Any]:
        """The body of one submission."""
        kind = kind or self.rng.choice(KINDS)
        self.kinds[name] = kind
        return {
            "team": "kills",
            "id": name,
            "command": ["sh", "-c", _ATTEMPT],
            "env": {
                "LOCKS": str(self.folder / "locks"),
                "NAME": name,
                "SECONDS_TO_RUN": str(kind.seconds),
                "CODE": str(kind.code),
                "FAIL_FIRST": str(kind.fail_first),
            },
            "resources": {"cpu": "10m", "memory": "8Mi"},
            # Each attempt that a killed keeper took with it may cost a flaky task one more failure.
            "retries": {
                "failures": kind.retries,
                "losses": 100,
                "backoff": {"base_ms": 100, "cap_ms": 1000},
            },
            "run_timeout_s": kind.run_timeout_s,
            "grace_s": 2,
        }

    def held(self) -> list[str]:
        """Attempts that found another attempt of their task alive."""
        path = self.folder / "held"
        return path.read_text().splitlines() if path.exists() else []

    def numbers(self, name: str) -> list[int]:
        """Attempt numbers that ran, in order."""
        path = self.folder / "signed" / name
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def run_twice(self) -> dict[str, list[int]]:
        """Tasks of which one number was run more than once."""
        signed = {name: self.numbers(name) for name in self.kinds}
        return {n: ran for n, ran in signed.items() if max(Counter(ran).values(), default=0) > 1}
