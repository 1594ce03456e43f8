"""The main children that a keeper's journal names, as far as they can still be told from
strangers. Standard library only, because the warden reads the journal of its dead keeper.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keeper.census import Root, read_process

OPENED = "opened"
STARTED = "started"
ENDED = "ended"
FORGOTTEN = "forgotten"
BURIED = "buried"
INTENDED = "intended"
"""Kinds of journal lines; `k` in each."""


def boot_id() -> str:
    """Differs after each boot: pids of another boot name strangers."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def lines(journal: Path) -> Iterator[dict[str, Any]]:
    """Every line that is whole; what a crash tore off is passed over."""
    try:
        written = journal.read_bytes()
    except FileNotFoundError:
        return
    for line in written.split(b"\n"):
        try:
            read = json.loads(line)
        except ValueError:
            continue
        if isinstance(read, dict):
            yield read


def roots(journal: Path, instance: str | None = None) -> list[Root]:
    """Main children that were started (by this instance of the keeper) and have not ended."""
    found: dict[str, Root] = {}
    boot = boot_id()
    same_boot = False
    for line in lines(journal):
        match line.get("k"):
            case "opened":
                same_boot = line["boot"] == boot
            case "started" if same_boot and instance in (None, line["instance"]):
                found.pop(line["attempt"], None)
                if _is_the_same(line["pid"], line["born"]):
                    found[line["attempt"]] = Root(line["pid"], line["attempt"], line["waits"])
            case "ended":
                found.pop(line["ended"]["attempt"], None)
    return list(found.values())


def _is_the_same(pid: int, born: int) -> bool:
    """True when nobody else bears the pid: its session, if any is left, is then the child's."""
    process = read_process(pid)
    return process is None or process.born == born
