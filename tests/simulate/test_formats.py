"""Lines of both formats to machines and tasks; every fault names its file, line and column."""

import gzip

import pytest

from domain.priority import Band
from drystone.simulate.cells import InputError
from drystone.simulate.formats import DRYSTONE, OPENB, read_machines, read_tasks
from drystone.simulate.records import Amounts


@pytest.fixture
def a_file(tmp_path):
    def write(text, name="some.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_a_machine_with_everything(a_file):
    header = (
        "id,cluster,zone,rack,cpu_milli,memory_mib,gpu,gpu_model,disk_mib,net_mbps,labels,taints,"
        "cordoned,price_per_hour,reserved_cpu_milli,reserved_memory_mib,reserved_disk_mib,"
        "reserved_net_mbps"
    )
    line = "m1,c1,z1,r1,64000,1024,8,T4,5,6,disk=ssd;os=l,own=ml:NoSchedule;x=,1,2.5,10,20,3,4"
    (one,) = read_machines(a_file(f"{header}\n{line}\n"), DRYSTONE)
    assert (one.id, one.cluster, one.zone, one.rack) == ("m1", "c1", "z1", "r1")
    assert one.capacity == Amounts(64_000, 1_024, 8, 5, 6)
    assert one.reserved == Amounts(10, 20, 0, 3, 4)
    assert one.labels == {"disk": "ssd", "os": "l"}
    assert one.taints == (("own", "ml"), ("x", ""))
    assert (one.gpu_model, one.cordoned, one.price_per_hour) == ("T4", True, 2.5)


def test_what_is_left_out_or_empty_has_a_default(a_file):
    (one,) = read_machines(a_file("id,cluster,cpu_milli\nm1,,\n"), DRYSTONE)
    assert (one.cluster, one.capacity, one.labels) == ("sim", Amounts(), {})
    (task,) = read_tasks(a_file("id,priority\nt1,\n"), DRYSTONE)
    assert (task.demand.team, task.demand.band) == ("default", Band.NORMAL)
    assert (task.demand.asks, task.submit_ms, task.duration_ms) == (Amounts(), None, None)


def test_a_task_with_everything(a_file):
    header = (
        "id,team,priority,cpu_milli,memory_mib,gpu,gpu_milli,gpu_models,disk_mib,net_mbps,clusters,"
        "zones,labels,tolerations,service,max_per_machine,gang,gang_size,submit_s,duration_s,"
        "preemptible_after_s"
    )
    line = (
        "t1,red,high,1,2,1,460,T4|P100,3,4,c1|c2,z1,a=1;b=2,own=ml:NoSchedule;any,web,2,,,1.5,60,9"
    )
    (task,) = read_tasks(a_file(f"{header}\n{line}\n"), DRYSTONE)
    demand = task.demand
    assert (demand.team, demand.band) == ("red", Band.HIGH)
    assert demand.asks == Amounts(1, 2, 0, 3, 4), "a share stands for the device it is part of"
    assert (demand.gpu_milli, demand.devices, demand.milli_per_device) == (460, 1, 460)
    assert demand.gpu_models == ("T4", "P100")
    assert (demand.clusters, demand.zones) == (("c1", "c2"), ("z1",))
    assert demand.labels == (("a", "1"), ("b", "2"))
    assert demand.tolerations == (("own", "ml"), ("any", None))
    assert (demand.service, demand.max_per_machine) == ("web", 2)
    assert (task.submit_ms, task.duration_ms) == (1_500, 60_000)


def test_equal_lines_share_a_demand(a_file):
    stream = read_tasks(a_file("id,cpu_milli,submit_s\na,1,0\nb,1,5\nc,2,5\n"), DRYSTONE)
    assert stream[0].demand is stream[1].demand
    assert stream[0].demand is not stream[2].demand


def test_compressed_files_are_read(tmp_path):
    path = tmp_path / "tasks.csv.gz"
    path.write_bytes(gzip.compress(b"id,cpu_milli\nt1,250\n"))
    assert read_tasks(path, DRYSTONE)[0].demand.asks.cpu_milli == 250


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id,cpus,ram\na,1,2\n", ":1: unknown columns: cpus, ram; known are id, team"),
        ("cpu_milli\n1\n", ":1: missing columns: id"),
        ("id,zones,zones\na,,\n", ":1: columns that stand twice: zones"),
        ("", ": is empty"),
        ("id,cpu_milli\na,1\nb\n", ":3: has 1 cells, the header 2"),
        ("id\na\n\na\n", ": task 'a' stands in the file twice"),
        ("id\n\n,\n", ":3: has 2 cells"),
        ("id,cpu_milli\na,1\nb,1.5\n", ":3: cpu_milli must be a whole number"),
        ("id,cpu_milli\na,-1\n", ":2: cpu_milli must be a whole number"),
        ("id,cpu_milli\na,9999999999\n", ":2: cpu_milli must be a whole number from 0 to 2147"),
        ("id,gpu_milli\na,1000\n", ":2: gpu_milli must be a whole number from 0 to 999"),
        ("id,gpu,gpu_milli\na,2,500\n", ":2: gpu_milli is a share of one device"),
        ("id,priority\na,URGENT\n", ":2: priority must be one of CRITICAL"),
        ("id,max_per_machine\na,2\n", ":2: max_per_machine needs service"),
        ("id,gang\na,g1\n", ":2: gang: groups that start together are not placed yet"),
        ("id,labels\na,=x\n", ":2: labels must be k=v"),
        ("id,tolerations\na,k=v:NoExecute\n", ":2: taints: the effect must be NoSchedule"),
        ("id,submit_s\na,soon\n", ":2: submit_s must be seconds"),
        ("id,submit_s\na,0.0001\n", ":2: submit_s must be seconds"),
        ("id,submit_s\na,NaN\n", ":2: submit_s must be seconds"),
        ("id,submit_s\na,0\nb,\n", ":3: submit_s must be given for all tasks or for none"),
        ("id,zones\na,no good\n", ":2: zones"),
    ],
)
def test_a_wrong_line_of_tasks_is_named(a_file, text, says):
    path = a_file(text)
    with pytest.raises(InputError) as error:
        read_tasks(path, DRYSTONE)
    assert f"{path}{says}" in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id,hostname\na,b\n", ":1: unknown columns: hostname"),
        ("id\nm\nm\n", ": machine 'm' stands in the file twice"),
        ("id,cpu_milli,reserved_cpu_milli\nm,5,6\n", ":2: more is reserved than the machine has"),
        ("id,cordoned\nm,yes\n", ":2: cordoned must be 0 or 1"),
        ("id,gpu\nm,65\n", ":2: gpu must be a whole number from 0 to 64"),
        ("id,price_per_hour\nm,inf\n", ":2: price_per_hour must be a number"),
        ("id,taints\nm,k=v:PreferNoSchedule\n", ":2: taints: the effect must be NoSchedule"),
    ],
)
def test_a_wrong_line_of_machines_is_named(a_file, text, says):
    path = a_file(text)
    with pytest.raises(InputError) as error:
        read_machines(path, DRYSTONE)
    assert f"{path}{says}" in str(error.value)


def test_a_file_that_is_not_there_or_cut_off_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.csv: cannot be read"):
        read_tasks(tmp_path / "gone.csv", DRYSTONE)
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress(b"id\n" + b"t1\n" * 500)[:-12])
    with pytest.raises(InputError, match=r"cut\.csv\.gz: cannot be read"):
        read_tasks(cut, DRYSTONE)


OPENB_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time"
)


@pytest.mark.parametrize(
    ("line", "asks", "share", "times"),
    [
        ("p,6000,128,1,460,,LS,Running,5,25,7", Amounts(6_000, 128, 0), 460, (5_000, 18_000)),
        ("p,6000,128,1,1000,T4|P100,LS,Running,5,25,5", Amounts(6_000, 128, 1), 0, (5_000, 20_000)),
        ("p,6000,128,8,1000,,BE,Pending,5,25,", Amounts(6_000, 128, 8), 0, (5_000, 20_000)),
        ("p,6000,128,0,0,,BE,Running,5,,5", Amounts(6_000, 128, 0), 0, (5_000, None)),
        ("p,6000,128,0,0,,BE,Running,,,", Amounts(6_000, 128, 0), 0, (None, None)),
    ],
)
def test_openb_tasks_are_read_as_they_are(a_file, line, asks, share, times):
    (task,) = read_tasks(a_file(f"{OPENB_HEADER}\n{line}\n"), OPENB)
    assert (task.demand.asks, task.demand.gpu_milli) == (asks, share)
    assert (task.submit_ms, task.duration_ms) == times


def test_openb_lists_of_five_columns_and_machines(a_file):
    (task,) = read_tasks(
        a_file("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,2,3,1000\n"), OPENB
    )
    assert task.submit_ms is None
    (one,) = read_machines(a_file("sn,cpu_milli,memory_mib,gpu,model\nn,32000,64,2,T4\n"), OPENB)
    assert (one.id, one.capacity, one.gpu_model) == ("n", Amounts(32_000, 64, 2), "T4")


def test_an_openb_task_that_ends_before_it_begins_is_named(a_file):
    with pytest.raises(InputError, match=r":2: deletion_time lies before"):
        read_tasks(a_file(f"{OPENB_HEADER}\np,1,1,0,0,,LS,Running,5,6,7\n"), OPENB)
