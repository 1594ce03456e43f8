"""What the documentation says is tested is tested: every test that it names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("page", ["docs/faults.md", "docs/invariants.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = NAMED.findall((ROOT / page).read_text())
    assert len(named) > 10, "the page names no tests any more, or in another way"
    for file, name in named:
        assert (ROOT / file).is_file(), f"{page} names {file}"
        if name:
            source = (ROOT / file).read_text()
            assert re.search(rf"def {name}\b", source), f"{page} names {file}::{name}"
