"""`python -m sim SEED [--seeds K] [--trace]`: worlds with faults; a violated invariant ends it."""

import argparse
import sys
from collections import Counter

from sim.run import run
from sim.world import new_ledger


def main() -> int:
    """Run the seeds one by one; 1 at the first that goes wrong."""
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--seeds", type=int, default=1, help="so many, from SEED on")
    parser.add_argument("--trace", action="store_true", help="print every event, check every write")
    asked = parser.parse_args()
    events = 0
    counts: Counter[str] = Counter()
    engine = new_ledger()
    for seed in range(asked.seed, asked.seed + asked.seeds):
        out = sys.stdout if asked.trace else None
        result = run(seed, engine, out, every_write=asked.trace)
        events += result.events
        counts += result.counts
        if result.violation is not None:
            if not asked.trace:
                print(*result.lines, sep="\n")
            print(f"seed {seed}: {result.violation}")
            print(f"the whole story: python -m sim {seed} --trace")
            return 1
        if asked.seeds == 1:
            print(f"seed {seed}: {result.events} events, {result.virtual_s:.0f} s, {result.hash}")
    print(", ".join(f"{what} {count}" for what, count in sorted(counts.items())))
    print(f"{asked.seeds} seeds from {asked.seed}: no violation, {events} events")
    return 0


if __name__ == "__main__":
    sys.exit(main())
