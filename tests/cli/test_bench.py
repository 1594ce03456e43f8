"""`drystone bench` as people meet it: one style with the other commands, and never silent."""

import io
import re

import pytest
from typer.testing import CliRunner

from drystone.bench.__main__ import app
from drystone.bench.telling import measuring


class Terminal(io.StringIO):
    """Somebody looks."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("words", [["--help"], ["placement", "--help"], ["fill", "--batch", "0"]])
def test_help_and_errors_are_plain(words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.output.startswith("Usage: ")
    assert done.output.isascii()


def test_on_a_terminal_a_line_follows_what_is_done_and_is_gone_at_the_end() -> None:
    out = Terminal()
    with measuring("fill", out) as say:
        say("batch 7")
    assert re.search(r"measuring fill, \d+ s: batch 7\r\x1b\[K$", out.getvalue())
    assert "\n" not in out.getvalue()


def test_elsewhere_one_line_says_that_it_has_begun() -> None:
    out = io.StringIO()
    with measuring("fill", out) as say:
        say("batch 7")
    assert out.getvalue() == "drystone bench: measuring fill ...\n"
