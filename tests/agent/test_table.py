"""Table against a plain dict."""

from hypothesis import given
from hypothesis import strategies as st

from agent.table import Table

KEYS = st.text(max_size=3)


@given(st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers()))))
def test_a_table_is_a_dict_that_never_changes(changes: list[tuple[str, int | None]]) -> None:
    table: Table[int] = Table()
    plain: dict[str, int] = {}
    for key, value in changes:
        before, copy = table, dict(table.items())
        if value is None:
            table, _ = table.without(key), plain.pop(key, None)
        else:
            table, plain[key] = table.put(key, value), value
        assert dict(before.items()) == copy
        assert dict(table.items()) == plain
        assert len(table) == len(plain)
        assert (key in table) == (key in plain)
        assert table.get(key) == plain.get(key)
    assert table == Table(plain.items())
    assert sorted(table) == sorted(plain)


def test_the_order_does_not_depend_on_the_process() -> None:
    # With Python's own hash it would differ from run to run.
    keys = [f"blue/t{number}#1" for number in range(6)]
    assert list(Table((key, 0) for key in keys)) == [
        "blue/t4#1",
        "blue/t5#1",
        "blue/t3#1",
        "blue/t2#1",
        "blue/t0#1",
        "blue/t1#1",
    ]
