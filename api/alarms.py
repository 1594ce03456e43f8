"""Gauges of what a person should look at: brakes and audits. Numbers come from the ledger."""

from prometheus_client import CollectorRegistry, Gauge

from domain.audit import Alarms


class AlarmGauges:
    """Totals live in the ledger, so that any process can tell them: hence gauges that only grow."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"drystone_{name}", text, labels, registry=registry)

        self.silent = gauge("silent_clusters", "Clusters that are silent.")
        self.counted = gauge("leased_clusters", "Clusters that are silent or reachable.")
        self.machines = gauge("machine_brake", "1: its agent gives no machine up.", "cluster")
        self.since = gauge("brake_changed_seconds", "When the brake was set or lifted last.")
        self.standing = gauge("audit_differences", "Differences that stand.", "fault")
        self.found = gauge("audit_found", "Differences ever found.", "fault")
        self.healed = gauge("audit_healed", "Differences ever healed.", "fault")
        self.audited = gauge("audit_ended_seconds", "When the last audit ended.")
        self.doubted = gauge("audit_machines_doubted", "Machines whose agents count otherwise.")
        self.acts = gauge("operator_acts", "Words of operators.", "act")

    def show(self, seen: Alarms) -> None:
        """What the ledger says now."""
        brake = seen.brake
        self.silent.set(brake.silent)
        self.counted.set(brake.counted)
        self.since.set(brake.since.timestamp() if brake.since else 0)
        self.machines.clear()
        for cluster in brake.machines:
            self.machines.labels(cluster).set(1)
        for fault, count in seen.counts.items():
            self.standing.labels(fault.value).set(count.standing)
            self.found.labels(fault.value).set(count.found)
            self.healed.labels(fault.value).set(count.healed)
        self.audited.set(seen.audited_at.timestamp() if seen.audited_at else 0)
        self.doubted.set(seen.machines_doubted)
        for act, number in seen.acts.items():
            self.acts.labels(act).set(number)

    def forget(self) -> None:
        """Rather no number than an old one."""
        for labelled in (self.machines, self.standing, self.found, self.healed, self.acts):
            labelled.clear()
