"""What operators ask of the REST API beyond users: audits, brakes, losses, drains.

Words that change what the system may conclude carry the name of who says them.
"""

import time
from urllib.parse import quote

from domain.audit import AuditReport
from domain.errors import UnavailableError
from domain.views import BrakeView, ClusterView, MachineView
from drystone.client import Client
from drystone.questions import Question

AUDIT_S_MAX = 60.0
POLL_S = 0.2


class Operator(Client):
    """`with Operator() as drystone: drystone.audit()`."""

    def audit(self) -> AuditReport:
        """The last audit, what stands, and what was healed lately."""
        return self._ask(Question("GET", "/v1/audit", AuditReport))

    def audit_now(self, *, timeout_s: float = AUDIT_S_MAX) -> AuditReport:
        """The report of an audit that began after this call, or was under way."""
        before = self._ask(Question("POST", "/v1/audit", AuditReport))
        wanted = before.run + (before.ended_at is not None or before.run == 0)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            told = self.audit()
            if told.run >= wanted and told.ended_at is not None:
                return told
            time.sleep(POLL_S)
        raise UnavailableError(f"no audit has ended within {timeout_s:g} s")

    def lift_brake(self, *, by: str) -> BrakeView:
        """Let silent clusters be replaced, each after a wait that starts anew."""
        return self._ask(Question("POST", "/v1/brake/lift", BrakeView, {"by": by}))

    def lift_machines(self, cluster: str, *, by: str) -> ClusterView:
        """Let the agent of a cluster give its silent machines up."""
        path = f"/v1/clusters/{quote(cluster, safe='')}/brake/lift"
        return self._ask(Question("POST", path, ClusterView, {"by": by}))

    def drain(
        self,
        cluster: str,
        machine: str | None = None,
        *,
        by: str,
        drained: bool = True,
        deadline_s: int | None = None,
    ) -> MachineView | ClusterView:
        """Empty a machine, or a cluster without one; `drained=False` ends that."""
        query = {"by": by} | ({} if deadline_s is None else {"deadline_s": str(deadline_s)})
        word, of = "drain" if drained else "undrain", quote(cluster, safe="")
        if machine is None:
            return self._ask(Question("POST", f"/v1/clusters/{of}/{word}", ClusterView, query))
        path = f"/v1/machines/{of}/{quote(machine, safe='')}/{word}"
        return self._ask(Question("POST", path, MachineView, query))

    def confirm_machine_lost(self, cluster: str, machine: str, *, by: str) -> MachineView:
        """Vouch that nothing of this machine runs any more."""
        path = f"/v1/machines/{quote(cluster, safe='')}/{quote(machine, safe='')}/confirm-lost"
        return self._ask(Question("POST", path, MachineView, {"by": by}))
