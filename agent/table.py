"""A mapping that never changes: `put` and `without` answer with another one, for one bucket's cost.

A plain dict copied at each step would cost as much as everything the agent remembers. The order of
iteration depends on the keys alone, never on the process's hash seed, so a run can be repeated.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

V = TypeVar("V")

BUCKETS = 256
_MASK = BUCKETS - 1


class Table(Generic[V]):
    """Texts to values."""

    __slots__ = ("_buckets", "_count")

    def __init__(self, pairs: Iterable[tuple[str, V]] = ()) -> None:
        buckets: list[dict[str, V]] = [{} for _ in range(BUCKETS)]
        for key, value in pairs:
            buckets[_place(key)][key] = value
        self._buckets = tuple(buckets)
        self._count = sum(map(len, buckets))

    def get(self, key: str) -> V | None:
        """The value, or None."""
        return self._buckets[_place(key)].get(key)

    def __getitem__(self, key: str) -> V:
        return self._buckets[_place(key)][key]

    def __contains__(self, key: str) -> bool:
        return key in self._buckets[_place(key)]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for bucket in self._filled():
            yield from bucket

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._buckets == other._buckets

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Table({dict(self.items())!r})"

    def items(self) -> Iterator[tuple[str, V]]:
        """Keys and values."""
        for bucket in self._filled():
            yield from bucket.items()

    def values(self) -> Iterator[V]:
        """The values."""
        for bucket in self._filled():
            yield from bucket.values()

    def put(self, key: str, value: V) -> "Table[V]":
        """The same with this value."""
        place = _place(key)
        return self._with(place, {**self._buckets[place], key: value})

    def without(self, key: str) -> "Table[V]":
        """The same without this key, which need not be there."""
        place = _place(key)
        if key not in self._buckets[place]:
            return self
        return self._with(place, {k: v for k, v in self._buckets[place].items() if k != key})

    def _filled(self) -> Iterable[dict[str, V]]:
        return filter(None, self._buckets) if self._count else ()

    def _with(self, place: int, bucket: dict[str, V]) -> "Table[V]":
        table: Table[V] = Table.__new__(Table)
        table._buckets = (*self._buckets[:place], bucket, *self._buckets[place + 1 :])
        table._count = self._count - len(self._buckets[place]) + len(bucket)
        return table


def _place(key: str) -> int:
    return zlib.crc32(key.encode()) & _MASK
