"""What a placement round says of each task it looked at."""

from pydantic import BaseModel, Field

from domain.reasons import Reason


class Verdict(BaseModel, frozen=True):
    """Why one task waits: machines lost per reason, out of `machines` looked at."""

    reason: Reason
    """The foremost reason, for lists."""
    machines: int = 0
    lost: dict[Reason, int] = Field(default_factory=dict)
    """Per reason, how many machines the predicates removed, each counted at its first failure."""
    detail: str = ""
    """The nearest miss in words, e.g. `largest free cpu_milli 8000 < 12000`."""

    def top(self, reasons: int = 3) -> list[tuple[Reason, int]]:
        """The reasons that cost most machines, the greatest first."""
        return sorted(self.lost.items(), key=lambda item: (-item[1], item[0]))[:reasons]
