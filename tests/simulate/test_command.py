"""`drystone simulate` as people call it: files in, files and figures out."""

import json
import random
import sys

import pytest
from typer.testing import CliRunner, Result

from drystone.simulate.__main__ import app
from drystone.simulate.check import check
from drystone.simulate.engine import POLICY_NAMES
from drystone.simulate.formats import DRYSTONE, read_machines, read_tasks
from drystone.simulate.output import read_placements

KEYS = {
    *("policy", "seed", "batch", "machines", "tasks", "outcomes", "placed", "placed_share"),
    *("rounds", "wall_s", "placements_per_s", "utilisation", "gpu_allocation_ratio"),
    *("waiting_s", "preemptions", "fragmentation", "stranded"),
}


def run(*arguments: object) -> Result:
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


@pytest.fixture
def files(tmp_path):
    """40 tasks on the clock over four machines with GPUs; the machines are too few at times."""
    rng = random.Random(7)
    machines = ["id,zone,cpu_milli,memory_mib,gpu"]
    machines += [f"m{n},z{n % 2},8000,8192,2" for n in range(4)]
    tasks = ["id,cpu_milli,memory_mib,gpu,gpu_milli,service,submit_s,duration_s"]
    for n in range(40):
        gpu, share = rng.choice(((0, ""), (1, ""), (1, 300), (0, 700)))
        service, at_s = rng.choice(("", "web")), rng.randrange(30)
        tasks.append(f"t{n},{rng.choice((500, 4000))},512,{gpu},{share},{service},{at_s},20")
    paths = tmp_path / "machines.csv", tmp_path / "tasks.csv"
    for path, lines in zip(paths, (machines, tasks), strict=True):
        path.write_text("\n".join(lines) + "\n")
    return ("--machines", paths[0], "--tasks", paths[1])


def test_the_placements_file_is_the_same_byte_for_byte_and_lawful(files, tmp_path):
    written = []
    for name in ("one.csv", "two.csv"):
        assert run(*files, "--out", tmp_path / name, "--seed", 5, "--check").exit_code == 0
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]
    header = b"task_id,attempt,machine_id,gpu_devices,placed_s,ended_s,outcome,reason\n"
    assert written[0].startswith(header)
    fleet, stream = read_machines(files[1], DRYSTONE), read_tasks(files[3], DRYSTONE)
    found = check(fleet, stream, read_placements(tmp_path / "one.csv"))
    assert (found.placements, found.described) == (40, [])


def test_json_is_one_object_with_every_figure(files):
    done = run(*files, "--json", "--check")
    found = json.loads(done.stdout)
    assert found.keys() == KEYS | {"check"}
    assert found["outcomes"]["succeeded"] == found["placed"] == 40
    assert found["waiting_s"].keys() == {"p50", "p90", "p99", "max"}
    assert 0 < found["utilisation"]["mean"]["gpu_milli"] < 1
    assert found["check"] == {"placements": 40, "violations": 0, "spread_skew_max": None}


def test_several_policies_stand_side_by_side_and_write_a_file_each(files, tmp_path):
    names = ",".join(POLICY_NAMES)
    done = run(*files, "--policy", names, "--out", tmp_path / "out.csv")
    assert all(name in done.stdout for name in POLICY_NAMES)
    assert {path.name for path in tmp_path.glob("out*")} == {
        f"out-{name}.csv" for name in POLICY_NAMES
    }
    found = json.loads(run(*files, "--policy", names, "--json").stdout)
    assert [one["policy"] for one in found["policies"]] == list(POLICY_NAMES)


def test_a_picture_is_drawn(files, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "out.png"
    assert run(*files, "--plot", path, "--policy", "pack,spread").exit_code == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_message_says_what_to_install(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run(*files, "--plot", tmp_path / "out.png")
    assert done.exit_code == 2
    assert "pip install 'drystone[plot]'" in done.stderr
    assert not (tmp_path / "out.png").exists()


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (("--policy", "tight"), "--policy must be of"),
        (("--format", "swf"), "--format must be one of drystone, openb"),
        (("--out", "/nowhere/at/all.csv"), "--out: /nowhere/at/all.csv cannot be written: there"),
        (("--out", "/"), "--out: / is a folder; name a file"),
        (("--plot", "/nowhere/all.png"), "--plot: /nowhere/all.png cannot be written: there is no"),
        (("--plot", "all.foo"), "--plot: all.foo must end in .png, .svg, .pdf"),
        (("--format", "openb"), "machines.csv:1: unknown columns: id, zone"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_anything_is_placed(
    files, extra, says, monkeypatch
):
    monkeypatch.delattr("drystone.simulate.__main__.simulate")
    done = run(*files, *extra)
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_file_without_machines_is_told_and_its_tasks_wait(files):
    files[1].write_text("id,cpu_milli\n")
    done = run(*files, "--json")
    assert (done.exit_code, json.loads(done.stdout)["outcomes"]["unplaced"]) == (0, 40)
    assert done.stderr.startswith(f"drystone simulate: {files[1]} holds no machine")
