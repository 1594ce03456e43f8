"""What the commands say where no Drystone is running, or something else answers in its place."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from typer.testing import CliRunner

from domain.errors import ConflictError, InvalidError, NeverFitsError
from domain.errors import UnavailableError as AwayError
from domain.supervision import Reach
from domain.views import ClusterDrainView, ClusterView
from drystone.cli.asked import Entry, read_entries
from drystone.cli.main import app
from drystone.cli.output import exit_of
from drystone.cli.places import cluster_state_of
from drystone.cli.submit import CONCURRENCY, Batch, verdict_code
from drystone.client import AsyncClient, Client
from drystone.questions import Patience
from drystone.stack.plan import Wish, WishError, plan
from tests.cli.conftest import call

OURS = {"type": "about:blank", "title": "Too Many Requests", "status": 429, "code": "backlog_full"}


@contextmanager
def answering(status: int, body: str, kind: str = "text/html") -> Iterator[tuple[str, list[Any]]]:
    """A server that gives one answer to everything; its address, and what it was asked."""
    asked: list[Any] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            asked.append((self.path, self.rfile.read(length)))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Retry-After", "1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET  # noqa: N815 (the library's name)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, "<html>welcome</html>"), (200, '{"a": 1}'), (404, "<html>no</html>"), (404, "{}")],
)
def test_what_is_not_the_api_is_named(status: int, body: str) -> None:
    with answering(status, body) as (url, _), Client(url, retries=0) as client:
        for ask in (
            lambda: client.get("a"),
            client.list,
            lambda: next(client.output("a")),
            lambda: client.submit({"command": ["true"]}),
        ):
            with pytest.raises(AwayError, match=f"what answers at {url}"):
                ask()


def test_what_is_not_the_api_is_69() -> None:
    with answering(200, "<html>welcome</html>") as (url, _):
        done = call(["run", "--", "true"], {"DRYSTONE_API_URL": url})
    assert done.returncode == 69, done
    assert done.stderr.startswith(f"drystone: what answers at {url}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("address", ["nonsense", "http://[::1", "ftp://127.0.0.1"])
def test_an_address_that_is_none_is_named(address: str) -> None:
    with pytest.raises(AwayError, match=re.escape(address)):
        Client(address)


def test_a_name_stays_one_part_of_the_path() -> None:
    with answering(404, "{}") as (url, asked), Client(url, retries=0) as client:
        for name in ("a?b", "..", "a/b"):
            with pytest.raises(AwayError):
                client.get(name)
    paths = [path.removeprefix("/v1/tasks/default/") for path, _ in asked]
    assert paths == ["a%3Fb", "%2E%2E", "a%2Fb"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"command": ', "-: not JSON"),
        ('[\n{"command": ["true"]},\n]', "-: not JSON: Expecting value: line 3"),
        ("[1]", "-: must be an object, not 1"),
        ('{"a": 1}\nno', "-, line 2: not JSON"),
        ("\n", "-: there is no task in it"),
        ("[" * 100_000, "-: not JSON: "),
        ('{"id": "a", "id": "b"}', "-: id: stands twice"),
        ('{"a": 1}\n{"r": {"cpu": 1, "cpu": 2}}', "-, line 2: r.cpu: stands twice"),
        ('[{"a": 1}, {"b": [{"c": 1, "c": 2}]}]', "-, task 2 of 2: b[0].c: stands twice"),
    ],
)
def test_a_file_that_holds_no_tasks_is_told_where(
    capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    with pytest.raises(typer.Exit) as ended:
        read_entries("-", text)
    assert ended.value.exit_code == 2
    assert capsys.readouterr().err.startswith(f"drystone: {told}")


async def test_what_is_refused_for_all_is_not_asked_for_each() -> None:
    problem = json.dumps({**OURS, "status": 503, "code": "unavailable"})
    batch = Batch([Entry(f"line {n}", {"command": ["true"], "id": f"t{n}"}) for n in range(500)])
    with answering(503, problem, "application/problem+json") as (url, asked):
        async with AsyncClient(url, retries=0) as client:
            await batch.run(client, wait=True, timeout=None)
    assert len(asked) <= CONCURRENCY
    assert verdict_code([batch.results[place] for place in range(500)], wait=True) == 69


def test_a_full_backlog_is_ridden_out_for_a_bounded_time() -> None:
    request = httpx.Request("POST", "http://127.0.0.1:9/v1/tasks")
    busy = httpx.Response(429, headers={"Retry-After": "2"}, json=OURS, request=request)
    told: list[object] = []
    patience = Patience(retries=1, busy_s_max=5.0, waits=told.append)
    assert [patience.pause_s(busy) for _ in range(3)] == [2.0, 2.0, None]
    assert len(told) == 1
    away = Patience(retries=1, busy_s_max=5.0)
    assert [away.pause_s(None), away.pause_s(None)] == [0.25, None]
    assert Patience(retries=1, busy_s_max=5.0).pause_s(httpx.Response(200)) is None


def test_words_that_are_not_utf8_are_refused_with_their_place() -> None:
    done = call(["run", "--", "echo", b"\xff".decode(errors="surrogateescape")], {})
    assert (done.returncode, "word 2 of the command" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish(cpu="lots"), "--cpu: must be a number of at least 0"),
        (Wish(cpu="0"), '--cpu: must be more than 0, not "0"'),
        (Wish(memory="1Q"), "--memory: must be a number of at least 0"),
        (Wish(api_port=99_999), "--api-port: must be a port from 1 to 65535, not 99999"),
        (Wish(ui_port=0), "--ui-port: must be a port"),
        (Wish(machine="a b"), "--machine: must be made of letters"),
    ],
)
def test_what_a_later_process_would_not_take_is_refused_by_its_option(
    wish: Wish, words: str
) -> None:
    with pytest.raises(WishError, match=f"^{words}"):
        plan(wish)


def test_up_refuses_a_wrong_option_at_once(tmp_path: Path) -> None:
    done = call(["up", f"--data={tmp_path / 'd'}", "--cpu=lots"], {})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("drystone up: --cpu: must be a number")
    assert not (tmp_path / "d").exists()


def test_an_option_that_does_not_fit_is_told_in_our_words() -> None:
    done = call(["run", "--timeout", "abc", "--", "true"], {})
    assert done.returncode == 2
    assert "'--timeout': must be a whole number, not \"abc\"" in done.stderr


def test_a_setting_that_does_not_fit_is_named_as_people_set_it(tmp_path: Path) -> None:
    done = call(["up", f"--data={tmp_path}"], {"DRYSTONE_LEASE_S": "abc"})
    assert done.returncode == 2
    assert 'DRYSTONE_LEASE_S: must be a number, not "abc"' in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("tasks", "explain", "a/b/c"), "'a/b/c' names no task: give ID or TEAM/ID"),
        (("tasks", "cancel", ""), "'' names no task"),
        (("cordon", "a/b/c"), "'a/b/c' names no machine: give CLUSTER/MACHINE, or MACHINE"),
        (("machines", "confirm-lost", "local/"), "'local/' names no machine"),
        (("drain",), "give a machine, or a cluster with --cluster"),
        (("undrain", "m1", "--cluster", "local"), "give a machine, or a cluster with --cluster"),
    ],
)
def test_a_name_that_can_be_none_is_refused_before_anything_is_asked(
    words: tuple[str, ...], told: str
) -> None:
    done = CliRunner().invoke(app, [*words, "--api", "http://127.0.0.1:9"])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"drystone: {told}")


def test_a_word_of_the_api_has_one_exit_code_whoever_asked() -> None:
    """But for an entry of a file: what was typed is right, and the other entries may fit."""
    away, invalid, never = AwayError("a"), InvalidError("i"), NeverFitsError("n", {})
    told = [exit_of(error) for error in (away, ConflictError("c"), invalid, never)]
    assert told == [69, 65, 2, 75]
    assert [verdict_code([error], wait=False) for error in (invalid, never)] == [65, 75]
    assert verdict_code([never, ConflictError("c"), invalid], wait=True) == 65


def test_the_version_is_told() -> None:
    done = call(["--version"], {})
    assert (done.returncode, done.stdout.split()[0]) == (0, "drystone")


@pytest.mark.parametrize(
    ("machines", "attempts", "whole", "words"),
    [
        (0, 0, False, "reachable"),
        (1, 0, False, "reachable, 1 machine drained"),
        (2, 3, False, "reachable, draining 2 machines, 3 left"),
        (2, 3, True, "reachable, draining all machines, 3 left"),
        (0, 0, True, "reachable, all machines drained"),
    ],
)
def test_a_clusters_state_says_how_far_its_drains_have_come(
    machines: int, attempts: int, whole: bool, words: str
) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    cluster = ClusterView(
        name="c1",
        state=Reach.REACHABLE,
        epoch=1,
        instance="i",
        registered_at=at,
        heard_at=at,
        drained_machines=machines,
        drained_attempts=attempts,
        drain=ClusterDrainView(by="ann", since=at) if whole else None,
    )
    assert cluster_state_of(cluster) == words
