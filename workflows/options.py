"""Timeouts and retries of every port, in one place."""

from datetime import timedelta

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityConfig, LocalActivityConfig

from domain.ids import agent_queue

# A ledger that is down is waited for by timers, whose distance grows to a minute, and not by a
# history that grows: two seconds of tries stand in it, then one timer each.
LEDGER = LocalActivityConfig(
    start_to_close_timeout=timedelta(seconds=1),
    local_retry_threshold=timedelta(seconds=2),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=100),
        backoff_coefficient=2,
        maximum_interval=timedelta(seconds=60),
        maximum_attempts=0,
    ),
)

ROUNDS_S_MAX = 60
"""One activity goes on with rounds for so long; then the workflow asks anew."""

# A worker that dies in a round is noticed by its heartbeats, and the round is done elsewhere.
ROUNDS = ActivityConfig(
    start_to_close_timeout=timedelta(seconds=2 * ROUNDS_S_MAX),
    heartbeat_timeout=timedelta(milliseconds=2_500),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=100),
        backoff_coefficient=2,
        maximum_interval=timedelta(seconds=5),
        maximum_attempts=0,
    ),
)

LOSS_PASSES_MAX = 1_000
"""Of one activity over a loss; it ends sooner when every number has settled."""
LOSS = ActivityConfig(
    start_to_close_timeout=timedelta(hours=6),
    heartbeat_timeout=timedelta(seconds=10),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(seconds=1),
        backoff_coefficient=2,
        maximum_interval=timedelta(seconds=30),
        maximum_attempts=0,
    ),
)

AUDIT_SWEEP_S_MAX = 20
"""One activity goes on looking for so long; then the workflow asks for the rest."""
# An audit that cannot go on is given up: the next one begins before long.
AUDIT = ActivityConfig(
    start_to_close_timeout=timedelta(seconds=6 * AUDIT_SWEEP_S_MAX),
    heartbeat_timeout=timedelta(seconds=30),
    schedule_to_close_timeout=timedelta(minutes=10),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(seconds=1),
        backoff_coefficient=2,
        maximum_interval=timedelta(seconds=30),
        maximum_attempts=5,
    ),
)

DELIVERY_START_S = 10
DELIVERY_S = 10


def to_agent(cluster: str) -> ActivityConfig:
    """Once only: the workflow itself tries again, with fresh orders, at every hint and heartbeat.

    Nobody may poll an agent's queue, so here alone waiting for a start has an end.
    """
    return ActivityConfig(
        task_queue=agent_queue(cluster),
        schedule_to_start_timeout=timedelta(seconds=DELIVERY_START_S),
        start_to_close_timeout=timedelta(seconds=DELIVERY_S),
        retry_policy=RetryPolicy(maximum_attempts=1),
    )
