"""A key that stands twice in a JSON object is found, wherever it is."""

import pytest

from domain.once import repeated_key


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"a": 1, "b": {"a": 2}, "c": [{"a": 3}, {"a": 4}]}', ""),
        ('[1, {"a": 1, "a": 2}]', "[1].a"),
        ("[]", ""),
        ("7", ""),
        (b'{"id": "x", "command": ["true"], "id": "y"}', "id"),
        ('{"a": {"cpu": 1}, "resources": {"cpu": 1, "memory": 2, "cpu": 3}}', "resources.cpu"),
        ('{"a": [[], {"b": [1, {"c": 1, "\\u0063": NaN}]}]}', "a[1].b[1].c"),
        ('{"a": {"x": 1, "x": 2}, "a": {}}', "a"),
        ('{"n": ' + "9" * 5_000 + ', "n": 1e999}', "n"),
    ],
)
def test_a_key_that_stands_twice_is_found_with_its_way(text: str | bytes, where: str) -> None:
    assert repeated_key(text) == where
