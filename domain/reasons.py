"""Every "no" of the system as a value. Nobody parses a message; a message explains a value."""

from enum import StrEnum


class Reason(StrEnum):
    """Why a machine, a round, an agent or a keeper said no, or why something ended."""

    # A machine cannot take the task: verdicts of a round, and refusals at submit.
    NO_ROOM_CPU = "no_room_cpu"
    NO_ROOM_MEMORY = "no_room_memory"
    NO_ROOM_GPU = "no_room_gpu"
    NO_ROOM_DISK = "no_room_disk"
    NO_ROOM_NET = "no_room_net"
    NO_ROOM_EXTRA = "no_room_extra"
    OTHER_CLUSTER = "other_cluster"
    OTHER_ZONE = "other_zone"
    LABEL_MISSING = "label_missing"
    TAINTED = "tainted"
    ANTI_AFFINITY = "anti_affinity"
    TOO_MANY_PER_MACHINE = "too_many_per_machine"
    TOO_MANY_PER_RACK = "too_many_per_rack"
    TOO_MANY_PER_ZONE = "too_many_per_zone"
    TOO_MANY_PER_VALUE = "too_many_per_value"
    UNEVEN = "uneven"
    NOT_NEAR = "not_near"
    NO_SUCH_DOMAIN = "no_such_domain"
    CORDONED = "cordoned"
    UNREACHABLE = "unreachable"
    COOLING_DOWN = "cooling_down"
    # The round or the ledger said no to the task as a whole.
    NO_MACHINES_YET = "no_machines_yet"
    NEVER_FITS = "never_fits"
    LOST_RACE = "lost_race"
    NOT_YET_CONSIDERED = "not_yet_considered"
    # An agent refused an offer.
    AGENT_NO_ROOM = "agent_no_room"
    AGENT_NO_LEASE = "agent_no_lease"
    AGENT_UNKNOWN_MACHINE = "agent_unknown_machine"
    AGENT_STOP_CAME_FIRST = "agent_stop_came_first"
    # A keeper could not start, or ended, an attempt.
    NO_SUCH_COMMAND = "no_such_command"
    WORKING_FOLDER = "working_folder"
    CANNOT_START = "cannot_start"
    NONZERO_EXIT = "nonzero_exit"
    KILLED_BY_SIGNAL = "killed_by_signal"
    RUN_TIMEOUT = "run_timeout"
    # An attempt or task ended for an outside cause.
    CANCELLED_BY_USER = "cancelled_by_user"
    QUEUE_TIMEOUT = "queue_timeout"
    WORKFLOW_GONE = "workflow_gone"
    MAY_STILL_RUN = "may_still_run"
    KEEPER_LOST = "keeper_lost"
    MACHINE_LOST = "machine_lost"
    CLUSTER_LOST = "cluster_lost"
    ATTEMPT_UNKNOWN = "attempt_unknown"
    SUPERSEDED = "superseded"
    PREEMPTED = "preempted"
    DRAINED = "drained"
    SHUT_DOWN = "shut_down"
    OFFER_UNANSWERED = "offer_unanswered"
    BUDGET_SPENT = "budget_spent"


PREEMPTION_MAY_HELP = frozenset(
    {
        Reason.NO_ROOM_CPU,
        Reason.NO_ROOM_MEMORY,
        Reason.NO_ROOM_GPU,
        Reason.NO_ROOM_DISK,
        Reason.NO_ROOM_NET,
        Reason.NO_ROOM_EXTRA,
        Reason.ANTI_AFFINITY,
        Reason.TOO_MANY_PER_MACHINE,
        Reason.TOO_MANY_PER_RACK,
        Reason.TOO_MANY_PER_ZONE,
        Reason.TOO_MANY_PER_VALUE,
        Reason.UNEVEN,
    }
)
"""Reasons that would go away if other tasks yielded; the others would not."""

RESOURCE_REASON = {
    "cpu_milli": Reason.NO_ROOM_CPU,
    "memory_mib": Reason.NO_ROOM_MEMORY,
    "gpu": Reason.NO_ROOM_GPU,
    "disk_mib": Reason.NO_ROOM_DISK,
    "net_mbps": Reason.NO_ROOM_NET,
}
"""The reason for each standard resource; named extra resources share NO_ROOM_EXTRA."""
