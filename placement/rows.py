"""Machines one by one as columns, and the order in which columns suit dealing. Places nothing."""

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from domain.fleet import MachineColumns, MachineStanding
from domain.resources import COLUMNS

_GPU = COLUMNS.index("gpu")
_NOTHING: list[tuple[int, ...]] = [()] * len(COLUMNS)


def columns_of(machines: Sequence[MachineStanding]) -> MachineColumns:
    """The same machines as columns, in the same order."""
    codes: dict[tuple[int, int], int] = {}
    # Machines of one kind mostly share the very objects, so that names of objects are enough here.
    marking = [codes.setdefault((id(m.labels), id(m.taints)), len(codes)) for m in machines]
    firsts = dict(zip(reversed(marking), reversed(machines), strict=True))
    return MachineColumns(
        cluster=[m.cluster for m in machines],
        name=[m.name for m in machines],
        zone=[m.zone for m in machines],
        rack=[m.rack for m in machines],
        marking=marking,
        markings=[(firsts[code].labels, firsts[code].taints) for code in range(len(codes))],
        capacity=list(zip(*[m.capacity for m in machines], strict=True)) or _NOTHING,
        used=list(zip(*[m.used for m in machines], strict=True)) or _NOTHING,
        cordoned=[m.cordoned for m in machines],
        reachable=[m.reachable for m in machines],
        extras={
            at: (m.capacity_extra, m.used_extra)
            for at, m in enumerate(machines)
            if m.capacity_extra or m.used_extra
        },
        beside={at: m.beside for at, m in enumerate(machines) if m.beside},
        gpu_free_milli={
            at: m.gpu_free_milli for at, m in enumerate(machines) if m.gpu_free_milli is not None
        },
    )


def dealt_order(columns: MachineColumns) -> npt.NDArray[np.intp]:
    """The places of the machines in the order in which an empty index lays them out: without GPUs
    first, zone by zone, and inside a zone shuffled by name. So every stretch of a zone is a fair
    sample of it, whatever order the rows came in, and rows that differ only in order are laid out
    alike."""
    drawn = np.fromiter(map(zlib.crc32, map(str.encode, columns.name)), np.int64, len(columns.name))
    zones = {zone: at for at, zone in enumerate(sorted(set(columns.zone)))}
    zone = np.fromiter(map(zones.__getitem__, columns.zone), np.int64, len(columns.zone))
    with_gpu = np.asarray(columns.capacity[_GPU]) > 0
    key = (with_gpu.astype(np.int64) << 56) | (zone << 32) | drawn
    order = np.argsort(key)
    return _settle_ties(columns, order, key[order])


def _settle_ties(
    columns: MachineColumns, order: npt.NDArray[np.intp], key: npt.NDArray[np.int64]
) -> npt.NDArray[np.intp]:
    """Machines drawn alike stand in the order of their names: a few in 100,000."""
    alike = np.flatnonzero(key[1:] == key[:-1])
    if len(alike):
        first, last = alike, alike + 1
        for start in first[~np.isin(first, last)].tolist():
            end = start + 1
            while end < len(key) and key[end] == key[start]:
                end += 1
            names = sorted(order[start:end], key=lambda at: (columns.cluster[at], columns.name[at]))
            order[start:end] = names
    return order


def coded(names: Sequence[str], codes: dict[str, int]) -> npt.NDArray[np.int32]:
    """The code of each name; new names get the next codes, in alphabetical order."""
    for name in sorted(set(names) - codes.keys()):
        codes[name] = len(codes)
    return np.fromiter(map(codes.__getitem__, names), np.int32, len(names))
