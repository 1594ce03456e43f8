"""More machines in the index: clusters of them in the ledger, which the measured tasks avoid.

They come in through the ledger's own transactions and nobody answers for them: what is measured is
how much more machines cost those who place, not how soon agents register them.
"""

from pathlib import Path

from drystone.bench.generated import GeneratedLedger
from runtime.settings import Settings


def add_crowd(folder: Path, machines: int) -> None:
    """So many machines in reachable clusters, in the ledger of the installation in this folder."""
    if machines:
        ledger = GeneratedLedger(Settings(data_dir=folder).database_url, partitions=1, seed=1)
        ledger.add_machines(machines)
        ledger.engine.dispose()
