"""Names of things: id types, and the only functions that make workflow ids and queue names."""

import hashlib
import re
from typing import Annotated, NewType

from pydantic import StringConstraints

from domain.misfit import NAME_PATTERN

TaskKey = NewType("TaskKey", str)
"""`<team>/<id>`: names one task in the ledger, in reports and in workflow ids."""

TEAM_CHARS_MAX = 63
TASK_ID_CHARS_MAX = 200
NAME_CHARS_MAX = 63

_TASK_ID = re.compile(NAME_PATTERN)

TeamName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=TEAM_CHARS_MAX, pattern=NAME_PATTERN),
]
TaskId = Annotated[
    str,
    StringConstraints(min_length=1, max_length=TASK_ID_CHARS_MAX, pattern=NAME_PATTERN),
]
Name = Annotated[
    str,
    StringConstraints(min_length=1, max_length=NAME_CHARS_MAX, pattern=NAME_PATTERN),
]
"""A cluster, machine, zone, rack, service or label key."""

WORKFLOW_QUEUE = "drystone"
"""Task queue of the workflows and of the scheduler's own activities."""


def task_key(team: str, task_id: str) -> TaskKey:
    """The ledger's key of a task."""
    return TaskKey(f"{team}/{task_id}")


def split_task_key(key: str) -> tuple[str, str]:
    """Team and id of a task key."""
    team, _, task_id = key.partition("/")
    return team, task_id


def task_workflow_id(key: str) -> str:
    """`task/<team>/<id>`."""
    return f"task/{key}"


def placement_workflow_id(partition: int) -> str:
    """`placement/<partition>`."""
    return f"placement/{partition}"


def cluster_workflow_id(cluster: str) -> str:
    """`cluster/<name>`."""
    return f"cluster/{cluster}"


def agent_queue(cluster: str) -> str:
    """Task queue on which the agent of a cluster serves its activities."""
    return f"agent-{cluster}"


def attempt_id(key: str, number: int) -> str:
    """`<team>/<id>#<number>`: one attempt, unique for ever because numbers never fall."""
    return f"{key}#{number}"


def split_attempt_id(attempt: str) -> tuple[TaskKey, int]:
    """Task key and number of an attempt id."""
    key, _, number = attempt.rpartition("#")
    return TaskKey(key), int(number)


def partition_of(team: str, partitions: int) -> int:
    """The partition that serves a team: stable for ever for equal `partitions`."""
    digest = hashlib.blake2b(team.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % partitions


def attempt_hash(attempt: str) -> int:
    """64-bit hash of an attempt id, for the running digest (count and xor)."""
    return int.from_bytes(hashlib.blake2b(attempt.encode(), digest_size=8).digest(), "big")


def task_id_of_key(client_key: str) -> str:
    """The task id that stands for a client's key: the key itself where it is a legal id."""
    if len(client_key) <= TASK_ID_CHARS_MAX and _TASK_ID.fullmatch(client_key):
        return client_key
    return "key-" + hashlib.blake2b(client_key.encode(), digest_size=16).hexdigest()
