"""What README.md tells a newcomer to type works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND_S_MAX, Up

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"<!-- tested: (shell|python) -->\n```\w+\n(.*?)```", re.DOTALL)


def blocks(kind: str) -> list[str]:
    """The blocks of this kind that are marked as tested."""
    found = _BLOCK.findall((ROOT / "README.md").read_text())
    return [text for of, text in found if of == kind]


def typed(up: Up, text: str, command: list[str]) -> str:
    """What it prints, against this `up` in place of the default ports."""
    text = text.replace(":8080", f":{up.api_port}").replace(":7233", f":{up.temporal_port}")
    beside = Path(sys.executable).parent
    environment = {**up.environment, "PATH": f"{beside}:{up.environment['PATH']}"}
    done = subprocess.run(
        [*command, text],
        capture_output=True,
        text=True,
        env=environment,
        timeout=COMMAND_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout


def test_all_three_forms_are_there() -> None:
    assert (len(blocks("shell")), len(blocks("python"))) == (2, 1)


def test_the_command_runs(up: Up) -> None:
    assert typed(up, blocks("shell")[0], ["sh", "-ec"]).startswith("hello from ")


@pytest.mark.usefixtures("up")
def test_the_requests_run(up: Up) -> None:
    printed = typed(up, blocks("shell")[1], ["sh", "-ec"])
    assert '"phase":"SUCCEEDED"' in printed
    assert printed.endswith("hello\n")


def test_the_temporal_client_runs(up: Up) -> None:
    # The pause at its end is there for a reason. The thread of the SDK that hands over the last
    # answer still has Python's lock to give back; an interpreter that ends before that aborts
    # (temporalio/sdk-python issue 300: "PyGILState_Release: thread state must be current"). On two
    # busy cores 13 of 80 runs without the pause died by SIGABRT or SIGSEGV after the right output,
    # and none of 80 with it.
    assert typed(up, blocks("python")[0], [sys.executable, "-c"]) == "SUCCEEDED 0\n"
