"""Whether this agent's polls for activities get through, read from the metrics of Temporal's SDK.

An agent that cannot be given orders must not keep its lease alive. Each poll that ends leaves a
latency, and those that failed a failure as well. An idle poll takes about a minute to come back
with nothing, so silence proves little: only failures that go on prove that nothing gets through.
Silence after them proves more once the server has answered something else over the same connection:
by then the poll has been tried again, and waits there.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from temporalio.runtime import BufferedMetricUpdate

LATENCY = "temporal_long_request_latency"
FAILURE = "temporal_long_request_failure"
OPERATION = "PollActivityTaskQueue"
UPDATES_MAX = 100_000
"""Size of the buffer between two readings, a second apart."""
RETRIED_MS = 14_000
"""The SDK tries a poll again at most 10 s after a failure, and a fifth of that by chance."""
STILL_FAILING_MS = 30_000
"""How long a try may take that finds no connection: without a failure for so long, a poll waits."""
IDLE_POLL_MS = 70_000


@dataclass(frozen=True, slots=True)
class PollWatch:
    """What is known of the polls."""

    succeeded_ms: int
    failing_since_ms: int | None = None
    failed_ms: int = 0
    reached_ms: int | None = None
    """When the server answered something else, after the last failure."""

    def after(self, successes: int, failures: int, now_ms: int) -> "PollWatch":
        """Some ended."""
        if successes:
            return PollWatch(succeeded_ms=now_ms)
        if not failures:
            return self
        since_ms = now_ms if self.failing_since_ms is None else self.failing_since_ms
        return replace(self, failing_since_ms=since_ms, failed_ms=now_ms, reached_ms=None)

    @property
    def asks(self) -> bool:
        """Whether it helps to know if the server answers anything."""
        return self.failing_since_ms is not None and self.reached_ms is None

    def reached(self, now_ms: int) -> "PollWatch":
        """The server has answered something else."""
        return replace(self, reached_ms=now_ms)

    def healthy(self, now_ms: int, lease_ms: int) -> bool:
        """False when no poll got through for a lease."""
        quiet_ms = STILL_FAILING_MS if self.reached_ms is None else RETRIED_MS
        if self.failing_since_ms is not None and now_ms - self.failed_ms < quiet_ms:
            return now_ms - self.failing_since_ms < lease_ms
        through_ms = max(self.succeeded_ms, self.reached_ms or 0)
        return now_ms - through_ms < lease_ms + IDLE_POLL_MS


def ended_polls(updates: Iterable[BufferedMetricUpdate]) -> tuple[int, int]:
    """How many polls succeeded and how many failed, in these updates."""
    ended = failures = 0
    for update in updates:
        if update.metric.name == LATENCY and update.attributes.get("operation") == OPERATION:
            ended += 1
        elif update.metric.name == FAILURE and update.attributes.get("operation") == OPERATION:
            failures += int(update.value)
    return max(0, ended - failures), failures
