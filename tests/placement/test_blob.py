"""Machines as bytes: what comes out is what went in, and anything else is refused."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given

from domain.fleet import MachineColumns
from placement.blob import pack, unpack
from placement.index import MachineIndex
from placement.rows import columns_of
from tests.placement.worlds import World, world_of, worlds


def plainly(columns: MachineColumns) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        if isinstance(value, str) or not hasattr(value, "__iter__") or hasattr(value, "key"):
            return value
        return [plain(one) for one in value]

    return {field.name: plain(getattr(columns, field.name)) for field in fields(columns)}


@given(worlds())
def test_unpacked_machines_are_those_that_were_packed(world: World) -> None:
    machines = columns_of(world.fleet.machines)
    blob = pack(machines)
    again = unpack(blob)
    assert plainly(again) == plainly(machines)
    assert pack(again) == blob
    before, after = MachineIndex(), MachineIndex()
    before.upsert_columns(machines)
    after.upsert_columns(again)
    assert after.free.tobytes() == before.free.tobytes()
    assert after.names.texts() == before.names.texts()


def test_bytes_that_are_not_machines_or_not_all_of_them_are_refused() -> None:
    blob = pack(columns_of(world_with_machines().fleet.machines))
    for wrong in (b"", b"something else", blob[:25], blob[:60], blob[:-1], blob + b"\nm"):
        with pytest.raises(ValueError, match="machines"):
            unpack(wrong)


def world_with_machines() -> World:
    return next(world for seed in range(100) if len((world := world_of(seed)).fleet.machines) > 3)
