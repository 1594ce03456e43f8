"""Real traces: converters and the published set-up on small ones of our own, then on the originals.

The originals lie in `../shared/data` beside the checkout, where they are; without them those tests
are skipped.
"""

import csv
import gzip
import json
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drystone.simulate import convert, published
from drystone.simulate.formats import DRYSTONE, OPENB, read_machines, read_tasks
from drystone.simulate.records import TaskRow
from tests.simulate.worlds import a_demand, a_machine, ran

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
OPENB_DATA, LCG_DATA, MIXED_DATA = (
    DATA / name for name in ("openb-gpu-2023", "grid-lcg-2005", "mixed-fleet")
)


def needs(folder: Path) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not folder.is_dir(), reason=f"no {folder.name} beside the checkout")


# --- the published set-up ---

FLEET = [a_machine(f"g{n}", gpu=2, cpu=8_000) for n in range(5)]
LIST = [
    TaskRow("whole", a_demand(gpu=1), 0, 5),
    TaskRow("share", a_demand(gpu_milli=500), 3, 5),
    TaskRow("none", a_demand()),
]


def test_a_list_is_lengthened_to_the_share_with_names_of_its_own_and_no_times():
    stream = published.stretched(LIST, FLEET, 130, seed=42)
    asked = sum(row.demand.gpu_total_milli for row in stream)
    assert 13_000 <= asked < 14_000, "until 130 % of 10 GPUs are reached, and no further"
    assert len({row.id for row in stream}) == len(stream)
    assert {row.submit_ms for row in stream} == {None}
    assert {"whole", "share", "none"} <= {row.id for row in stream}
    again = published.stretched(LIST, FLEET, 130, seed=42)
    assert [row.id for row in again] == [row.id for row in stream]
    other = published.stretched(LIST, FLEET, 130, seed=43)
    assert [row.id for row in other] != [row.id for row in stream]


def test_a_list_that_is_too_long_is_cut_at_random():
    many = [TaskRow(f"t{n}", a_demand(gpu=1)) for n in range(100)]
    stream = published.stretched(many, FLEET, 130, seed=1)
    assert len(stream) == 13
    assert [row.id for row in stream] != [f"t{n}" for n in range(13)]


def test_the_best_published_mean_of_each_list_is_found(tmp_path):
    path = tmp_path / "summary.csv"
    path.write_text(
        "workload,policy,arrived_pct,allocated_pct_mean\n"
        "default,FGD,130,95.4\ndefault,BestFit,130,93.1\ndefault,Best,100,99\nother,Random,130,1\n"
    )
    found = published.best_published(path, 130)
    assert found == {"default": ("FGD", 95.4), "other": ("Random", 1.0)}


# --- converters, on a small log ---


@pytest.fixture
def small_log(tmp_path):
    sites = [(1, "a.org", 4, 1, 2), (2, "b.org", 1, 1, 0)]
    log = [(1, 0, 100, 200, 1, 1, 1), (2, 5, 0, 9, 2, 1, 2), (3, 6, 50, 99, 1, 2, 1)]
    with (tmp_path / "sites.csv").open("w", newline="") as file:
        csv.writer(file).writerows([convert.LCG_SITES.known, *sites])
    with gzip.open(tmp_path / "jobs.csv.gz", "wt", newline="") as file:
        csv.writer(file).writerows([convert.LCG_TASKS.known, *log])
    return tmp_path


@pytest.mark.parametrize(("extra", "clusters"), [((), ("site-1",)), (("--anywhere",), ())])
def test_a_grid_log_becomes_clusters_of_one_machine_and_tasks_of_one_core(
    small_log, extra, clusters
):
    target = small_log / "out"
    done = CliRunner().invoke(convert.app, ["lcg", str(small_log), str(target), *extra])
    assert done.exit_code == 0, done.output
    machines = read_machines(target / "machines.csv", DRYSTONE)
    assert [(m.id, m.cluster, m.capacity.cpu_milli) for m in machines] == [
        ("site-1", "site-1", 2_000),
        ("site-2", "site-2", 1_000),
    ]
    stream = read_tasks(target / "tasks.csv", DRYSTONE)
    assert [(t.id, t.submit_ms, t.duration_ms) for t in stream] == [
        ("lcg-1", 0, 100_000),
        ("lcg-2", 5_000, 0),
        ("lcg-3", 6_000, 50_000),
    ]
    assert (stream[0].demand.clusters, stream[0].demand.team) == (clusters, "group-1")
    assert ran(machines, stream).figures["outcomes"]["succeeded"] == 3


def test_smaller_sites_can_be_asked_for_and_a_wrong_log_is_named(small_log):
    target = small_log / "half"
    asked = ["lcg", str(small_log), str(target), "--cores-percent", "50"]
    assert CliRunner().invoke(convert.app, asked).exit_code == 0
    assert read_machines(target / "machines.csv", DRYSTONE)[0].capacity.cpu_milli == 1_000
    (small_log / "sites.csv").write_text("site,place\n1,x\n")
    done = CliRunner().invoke(convert.app, asked)
    assert done.exit_code == 2
    assert "unknown columns: place" in done.output.replace("\n", "")


# --- the originals ---


@needs(OPENB_DATA)
def test_the_published_setup_runs_on_an_original_list_every_placement_lawful(tmp_path):
    """A twentieth of the fleet: a whole run takes its time, and is for the benchmark."""
    machines = tmp_path / "machines.csv"
    lines = (OPENB_DATA / "nodes.csv").read_text().splitlines()
    machines.write_text("\n".join([lines[0], *lines[400::20]]) + "\n")
    arguments = [
        *("--machines", machines, "--shuffles", 2, "--json"),
        *("--results", DATA / "fgd-results" / "summary.csv"),
        OPENB_DATA / "tasks_default.csv.gz",
    ]
    done = CliRunner().invoke(published.app, [str(one) for one in arguments])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["lists"]["default"]
    assert found["violations"] == 0
    assert found["published_percent"] == pytest.approx(95.391)
    assert found["by_shuffle"].keys() == {"42", "43"}
    assert found["allocated_percent"] > 80, "far below what the default policy reaches"


@needs(OPENB_DATA)
def test_one_shuffle_as_files_is_what_the_setup_runs(tmp_path):
    source = (OPENB_DATA / "nodes.csv", OPENB_DATA / "tasks_gpuspec33.csv.gz")
    asked = ["openb", *map(str, source), str(tmp_path), "--seed", "43"]
    assert CliRunner().invoke(convert.app, asked).exit_code == 0
    fleet = published.with_gpus(read_machines(source[0], OPENB))
    stream = published.stretched(read_tasks(source[1], OPENB), fleet, 130, 43)
    machines = read_machines(tmp_path / "machines.csv", DRYSTONE)
    assert machines == fleet
    assert len(machines) == 1_213
    tasks = read_tasks(tmp_path / "tasks.csv", DRYSTONE)
    assert [row.id for row in tasks] == [row.id for row in stream]
    for one, other in zip(tasks, stream, strict=True):
        assert one.demand.asks == other.demand.asks
        assert one.demand.gpu_milli == other.demand.gpu_milli
        assert one.demand.gpu_models == other.demand.gpu_models


@needs(LCG_DATA)
def test_the_first_hours_of_the_grid_leave_no_task_unplaced(tmp_path):
    paths = tmp_path / "machines.csv", tmp_path / "tasks.csv"
    head = islice(convert.lcg_tasks(LCG_DATA / "jobs.csv.gz"), 2_001)
    for path, lines in zip(
        paths, (convert.lcg_machines(LCG_DATA / "sites.csv"), head), strict=True
    ):
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(lines)
    machines = read_machines(paths[0], DRYSTONE)
    assert len(machines) == 170
    found = ran(machines, read_tasks(paths[1], DRYSTONE)).figures
    assert found["outcomes"]["succeeded"] == 2_000
    assert found["waiting_s"]["max"] == 0, "the sites are as large as their peaks"


@needs(MIXED_DATA)
@pytest.mark.parametrize("pair", ["plain-1", "constrained-1"])
def test_the_head_of_a_generated_stream_is_placed_lawfully(pair):
    machines = read_machines(MIXED_DATA / f"{pair}-machines.csv.gz", DRYSTONE)
    stream = read_tasks(MIXED_DATA / f"{pair}-tasks.csv.gz", DRYSTONE)
    assert ran(machines, stream[:1_000]).figures["placed"] == 1_000
