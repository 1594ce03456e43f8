"""The state of one cluster's supervision, with everything a new run must know."""

from datetime import datetime

from pydantic import BaseModel

from domain.supervision import ClusterEffect, LeaseTerms, Reach

Effects = tuple[ClusterEffect, ...]
WATCHED = frozenset({Reach.REACHABLE, Reach.SUSPECT})
"""Only here may something run under a lease, so only here is silence counted."""
LOST = frozenset({Reach.FENCED, Reach.CONFIRMED})


class ClusterState(BaseModel, frozen=True):
    """Everything a ClusterWorkflow carries through continue-as-new, deadlines included."""

    cluster: str
    terms: LeaseTerms = LeaseTerms()
    reach: Reach = Reach.ABSENT
    epoch: int = 0
    instance: str = ""
    granted: bool = False
    """The agent of `instance` has taken the grant of `epoch`."""
    granting: bool = False
    grant_again: bool = False
    delivering: bool = False
    delivery_full: bool = False
    deliver_again: bool = False
    noting_answers: bool = False
    """The next `Noted` is about a delivery's answers: what they left out does not hurry."""
    deliveries_succeed: bool = False
    """The last one was answered: only then is an unanswered offer the agent's fault."""
    heard_at: datetime | None = None
    heard_in_slice: bool = False
    silent_slices: int = 0
    """Wholly silent ones that ended on time, since the last contact or the brake."""
    slice_began: datetime | None = None
    paging: bool = False
    page_again: bool = False
    heartbeats: int = 0
    strangers: int = 0
    """Heartbeats of an agent process that another has followed."""
    misfits: int = 0
