"""Whether this agent's polls for activities get through, read from the metrics of Temporal's SDK.

An agent that cannot be given orders must not keep its lease alive. Each poll that ends leaves a
latency, and those that failed a failure as well. An idle poll takes about a minute to come back
with nothing, so silence proves little: only failures that go on prove that nothing gets through.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from temporalio.runtime import BufferedMetricUpdate

LATENCY = "temporal_long_request_latency"
FAILURE = "temporal_long_request_failure"
OPERATION = "PollActivityTaskQueue"
UPDATES_MAX = 100_000
"""Size of the buffer between two readings, a second apart."""
STILL_FAILING_MS = 30_000
"""The SDK tries again at most 10 s after a failure: without one for so long, a poll is waiting."""
IDLE_POLL_MS = 70_000


@dataclass(frozen=True, slots=True)
class PollWatch:
    """What is known of the polls."""

    succeeded_ms: int
    failing_since_ms: int | None = None
    failed_ms: int = 0

    def after(self, successes: int, failures: int, now_ms: int) -> "PollWatch":
        """Some ended."""
        if successes:
            return PollWatch(succeeded_ms=now_ms)
        if not failures:
            return self
        since_ms = now_ms if self.failing_since_ms is None else self.failing_since_ms
        return replace(self, failing_since_ms=since_ms, failed_ms=now_ms)

    def healthy(self, now_ms: int, lease_ms: int) -> bool:
        """False when no poll got through for a lease."""
        if self.failing_since_ms is not None and now_ms - self.failed_ms < STILL_FAILING_MS:
            return now_ms - self.failing_since_ms < lease_ms
        return now_ms - self.succeeded_ms < lease_ms + IDLE_POLL_MS


def ended_polls(updates: Iterable[BufferedMetricUpdate]) -> tuple[int, int]:
    """How many polls succeeded and how many failed, in these updates."""
    ended = failures = 0
    for update in updates:
        if update.metric.name == LATENCY and update.attributes.get("operation") == OPERATION:
            ended += 1
        elif update.metric.name == FAILURE and update.attributes.get("operation") == OPERATION:
            failures += int(update.value)
    return max(0, ended - failures), failures
