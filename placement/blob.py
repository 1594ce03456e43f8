"""Machines as one piece of bytes, column behind column: an index from a file in place of a query.

Knows only the columns; an index loaded from them is laid out as from the ledger's rows. What the
ledger has changed since is read after that, as after any load (`store.columns.changed_columns`).

Layout: `_MAGIC`, the length of the header (8 bytes), the header (JSON), the columns of whole
numbers (64 bits each, little endian), the names (UTF-8, a line each).
"""

import json
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from domain.constraint import Taint
from domain.fleet import Beside, MachineColumns
from domain.resources import COLUMNS

_MAGIC = b"drystone machines 1\n"
_LENGTH_BYTES = 8
_NUMBER_BYTES = 8
_TEXTS = ("cluster", "zone", "rack")
_NUMBERS = 3 + len(_TEXTS) + 2 * len(COLUMNS)


def pack(machines: MachineColumns) -> bytes:
    """These machines as bytes; equal machines in equal order give equal bytes."""
    assert not any("\n" in name for name in machines.name), "a name of more than one line"
    names = "\n".join(machines.name).encode()
    tables = {}
    columns: list[Iterable[int]] = [machines.marking, machines.cordoned, machines.reachable]
    for name in _TEXTS:
        column = getattr(machines, name)
        codes = {text: code for code, text in enumerate(dict.fromkeys(column))}
        tables[name] = list(codes)
        columns.append(map(codes.__getitem__, column))
    columns += [*machines.capacity, *machines.used]
    header = json.dumps(
        {
            "machines": len(machines.name),
            "names_bytes": len(names),
            **tables,
            "markings": [
                [dict(labels), [taint.model_dump(mode="json") for taint in taints]]
                for labels, taints in machines.markings
            ],
            "extras": [[at, dict(has), dict(uses)] for at, (has, uses) in machines.extras.items()],
            "beside": [
                [at, [[b.team, b.service, b.shuns, b.count] for b in there]]
                for at, there in machines.beside.items()
            ],
            "gpu_free_milli": list(machines.gpu_free_milli.items()),
        },
        separators=(",", ":"),
    ).encode()
    numbers = [_little(array("q", map(int, column))).tobytes() for column in columns]
    length = len(header).to_bytes(_LENGTH_BYTES, "little")
    return b"".join([_MAGIC, length, header, *numbers, names])


def unpack(blob: bytes) -> MachineColumns:
    """The machines of `pack`. ValueError: these bytes are something else, or not all of it."""
    if not blob.startswith(_MAGIC):
        raise ValueError("not machines as this version packs them")
    start = len(_MAGIC) + _LENGTH_BYTES
    after = start + int.from_bytes(blob[len(_MAGIC) : start], "little")
    if after > len(blob):
        raise ValueError("machines cut short")
    header = json.loads(blob[start:after])
    machines = header["machines"]
    numbers_end = after + _NUMBERS * machines * _NUMBER_BYTES
    if len(blob) != numbers_end + header["names_bytes"]:
        raise ValueError("more or fewer bytes than the machines have")
    names = blob[numbers_end:].decode().split("\n") if machines else []
    columns = []
    for at in range(_NUMBERS):
        first = after + at * machines * _NUMBER_BYTES
        column = array("q")
        column.frombytes(blob[first : first + machines * _NUMBER_BYTES])
        columns.append(_little(column))
    marking, cordoned, reachable, cluster, zone, rack, *amounts = columns
    return MachineColumns(
        cluster=_texts(header["cluster"], cluster),
        name=names,
        zone=_texts(header["zone"], zone),
        rack=_texts(header["rack"], rack),
        marking=marking,
        cordoned=cordoned,
        reachable=reachable,
        capacity=amounts[: len(COLUMNS)],
        used=amounts[len(COLUMNS) :],
        **_few(header),
    )


def _few(header: dict[str, Any]) -> dict[str, Any]:
    """What is not a number for each machine."""
    return {
        "markings": [
            (labels, tuple(Taint.model_validate(taint) for taint in taints))
            for labels, taints in header["markings"]
        ],
        "extras": {at: (has, uses) for at, has, uses in header["extras"]},
        "beside": {
            at: tuple(
                Beside(team, service, tuple(shuns), count) for team, service, shuns, count in there
            )
            for at, there in header["beside"]
        },
        "gpu_free_milli": {at: tuple(free) for at, free in header["gpu_free_milli"]},
    }


def _texts(table: Sequence[str], codes: Iterable[int]) -> list[str]:
    return list(map(table.__getitem__, codes))


def _little(numbers: "array[int]") -> "array[int]":
    """To or from the order of bytes in the blob."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
