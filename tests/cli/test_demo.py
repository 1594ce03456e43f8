"""`make demo`, with fewer files: it does real work, checks it, and says how it went."""

import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest


@pytest.mark.e2e
def test_the_demo_ends_with_every_result_right_and_nothing_left() -> None:
    command = [sys.executable, "-m", "drystone.demo", "--files", "40"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done
    assert "0 wrong" in done.stdout
    assert "refused at submit" in done.stdout
    assert "Web UI" in done.stdout
    found = re.search(r"/\S*drystone-demo-\w+", done.stdout)
    assert found is not None
    folder = found[0]
    assert not Path(folder).exists()
    commands = [p.info["cmdline"] or [] for p in psutil.process_iter(["cmdline"])]
    assert [command for command in commands if folder in " ".join(command)] == []
