"""An installed wheel works far from the checkout, whatever folders lie where it is called."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.fleet import free_port

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
COMMAND_S_MAX = 120


def call(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run to its end, without anything of ours in the environment."""
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("DRYSTONE_", "PYTHON"))}
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**outside, "COLUMNS": "200", "HOME": str(cwd)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_S_MAX,
        check=False,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The console script of a fresh environment that holds the wheel, and borrows what it needs."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = call(*build, cwd=ROOT)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("drystone-*.whl")
    environment = folder / "environment"
    made = call(sys.executable, "-m", "venv", "--without-pip", environment, cwd=folder)
    assert made.returncode == 0, made.stderr
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    done = call(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    # A folder named in a .pth file is looked in last, and its own .pth files are not read: so our
    # dependencies are found there, and the checkout is not.
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return environment / "bin" / "drystone"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder whose own `api`, `worker` ... would be imported in place of ours."""
    for name in ("api", "worker", "agent", "keeper", "domain", "store"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    return tmp_path


def test_it_holds_all_packages_and_nothing_of_the_checkout(
    installed: Path, elsewhere: Path
) -> None:
    look = "import drystone, store.migrations.versions as v; print(drystone.__file__, *v.__path__)"
    seen = call(installed.with_name("python"), "-P", "-c", look, cwd=elsewhere)
    assert seen.returncode == 0, seen.stderr
    assert all(str(installed.parents[1]) in path for path in seen.stdout.split()), seen.stdout


@pytest.mark.parametrize("command", ["worker", "api", "agent", "keeper", "up", "run"])
def test_each_command_explains_itself(installed: Path, elsewhere: Path, command: str) -> None:
    said = call(installed, command, "--help", cwd=elsewhere)
    assert said.returncode == 0, said.stderr
    assert f"drystone {command}" in said.stdout
    assert "the wrong one" not in said.stderr


def test_it_runs_a_task(installed: Path, elsewhere: Path) -> None:
    """`up`, `run`, `down`, as a newcomer calls them."""
    data, api = elsewhere / "data", free_port()
    ports = [f"--api-port={api}", f"--temporal-port={free_port()}", f"--ui-port={free_port()}"]
    up = call(installed, "up", "--detach", "--data", data, *ports, cwd=elsewhere)
    assert up.returncode == 0, up.stderr
    try:
        url = f"http://127.0.0.1:{api}"
        ran = call(installed, "run", "--quiet", "--api", url, "--", "echo", "hello", cwd=elsewhere)
        assert (ran.returncode, ran.stdout) == (0, "hello\n"), ran.stderr
        failed = call(
            installed, "run", "-q", "--api", url, "--", "sh", "-c", "exit 3", cwd=elsewhere
        )
        assert failed.returncode == 3, failed.stderr
    finally:
        down = call(installed, "down", "--data", data, cwd=elsewhere)
    assert down.returncode == 0, down.stderr
