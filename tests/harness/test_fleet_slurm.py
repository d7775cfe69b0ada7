"""Fleets on a real Slurm of three virtual nodes: nodes, controllers and submitters die."""

import getpass
import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from fleet_support import TinyFleet
from tests_support import processes_of, wait_for

pytestmark = pytest.mark.nightly
SCRIPT = Path(__file__).parents[2] / "scripts" / "virtual_slurm.sh"
_PROGRAMS = ("slurmctld", "slurmd", "slurmstepd", "sbatch")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Starts a cluster; returns a function that starts and stops its daemons."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    if missing := [name for name in _PROGRAMS if shutil.which(name, path=path) is None]:
        pytest.skip(f"{', '.join(missing)} not installed: .ci/run lists the packages of Slurm")
    folder = tmp_path_factory.mktemp("slurm")

    def run(*arguments):
        words = [str(SCRIPT), arguments[0], str(folder), *arguments[1:]]
        subprocess.run(words, check=True, timeout=120)

    run.configuration = folder / "slurm.conf"
    try:
        run("start")
        yield run
    finally:
        run("stop")
        assert not processes_of(str(run.configuration))


@pytest.fixture
def fleet(tmp_path, cluster):
    """Makes fleets; their jobs leave the queue after the test."""
    variables = {**os.environ, "SLURM_CONF": str(cluster.configuration)}

    def slurm(*command):
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    def make(**options):
        tiny = TinyFleet(tmp_path, "slurm", variables=variables, **options)
        tiny.slurm = slurm
        return tiny

    yield make
    cluster("start", "controller")
    slurm("scancel", "--quiet", "--user", getpass.getuser())
    cluster("start")
    wait_for(lambda: slurm("squeue", "--noheader") == [], "an empty queue")


def keys(runs):
    """Keys of the jobs of these runs."""
    return [run["allocation"]["job"] for run in runs]


def test_a_node_and_the_submitter_die(fleet, cluster):
    """Twelve jobs are in one file, none twice, and the lost one shows its restart."""
    tiny = fleet(jobs=12, seconds=4)
    submitter = tiny.start("submit")
    wait_for(lambda: len(list((tiny.spool / "submitted").glob("*"))) and tiny.started, "a job")
    submitter.send_signal(signal.SIGKILL)
    submitter.communicate()
    before = len(tiny.slurm("squeue", "--noheader", "--states=all"))
    assert 0 < before < 12, "the submitter died in the middle"
    tiny.take(all=60)
    lost = len(tiny.started)
    tiny.cbs("resume")
    if tiny.count("claimed"):
        # The submitter died between its claim and `sbatch`; another one waits for ten minutes.
        tiny.expire_claims()
        assert tiny.cbs("resume").out == "submitted: 1 job in 1 batch\n"
    assert len(batches_of(tiny)) >= 12
    # A job that runs on n1 for a minute dies with its node.
    wait_for(lambda: len(tiny.started) >= lost + 3, "jobs that take a minute")
    [killed] = {item["key"] for item in on_nodes(tiny)["n1"]}
    cluster("stop", "n1")
    tiny.take(all=2)
    tiny.wait_for_results(12, 400)
    runs = tiny.results()
    assert sorted(keys(runs)) == sorted(set(keys(runs)))
    assert len(runs) == 12
    allocation = {run["allocation"]["job"]: run["allocation"] for run in runs}
    assert [key for key in allocation if allocation[key]["restarts"]] == [killed]
    assert allocation[killed]["node"] != "n1"
    assert {item["exclusive"] for item in allocation.values()} == {True}
    # Nothing started twice, except for the job of the dead node.
    assert Counter(tiny.started) == {key: 1 + (key == killed) for key in allocation}
    assert tiny.cbs("status").code == 0


def batches_of(tiny):
    """Jobs of each batch, by the batch's name."""
    files = (tiny.spool / "batches").glob("*.json")
    return {path.stem: json.loads(path.read_text())["jobs"] for path in files}


def on_nodes(tiny):
    """Jobs of running batches, by their nodes."""
    batches = batches_of(tiny)
    lines = tiny.slurm("squeue", "--noheader", "--states=running", "--format=%N %j")
    return {node: batches[name] for node, name in map(str.split, lines)}


def test_a_class_that_nobody_offers(fleet):
    tiny = fleet(jobs=2, classes="""
[[class]]
name = "any"
ENVIRONMENT
[[class]]
name = "huge"
requires = "+cpu +huge"
""")  # fmt: skip
    done = tiny.cbs("submit")
    assert done.code == 3
    assert done.lines == [
        "submitted: 2 jobs in 2 batches",
        "unsupported: class huge: no node offers +cpu +huge",
    ]
    assert tiny.count("unsupported") == 2
    tiny.wait_for_results(2)
    assert tiny.cbs("status").code == 3


@pytest.mark.parametrize(
    ("access", "reason"),
    [
        ('["-p", "nowhere"]', "sbatch: invalid partition specified: nowhere; "),
        ('["--constraint=nope"]', "Invalid feature specification"),
        ('["--no-such-option"]', "unrecognized option '--no-such-option'"),
        ('["--gres=gpu:1"]', "Invalid generic resource (gres) specification"),
    ],
)
def test_a_wrong_partition_is_one_line(fleet, access, reason):
    """Nothing stays claimed, so that a corrected FLEET.toml submits all."""
    tiny = fleet(jobs=2, classes=f'[[class]]\nname = "any"\nENVIRONMENT\naccess = {access}\n')
    done = tiny.cbs("submit")
    assert done.code == 1
    first, refused = done.lines
    assert first == "submitted: 0 jobs in 0 batches"
    assert refused.startswith("refused: class any: sbatch: ")
    assert reason in refused
    assert not tiny.claims
    assert not any((tiny.spool / "batches").iterdir())
    assert tiny.count("waiting") == 2
    tiny.replace(f"access = {access}", "")
    assert tiny.cbs("submit").out == "submitted: 2 jobs in 2 batches\n"
    tiny.wait_for_results(2)


def test_two_submitters(fleet):
    tiny = fleet(jobs=6, seconds=0)
    both = [tiny.start("submit") for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in both]
    numbers = [int(out.split()[1]) for out, _ in outputs]
    assert sum(numbers) == 6, outputs
    tiny.wait_for_results(6)
    runs = tiny.results()
    assert len(runs) == len(set(keys(runs))) == 6
    assert sorted(tiny.started) == sorted(keys(runs))


def test_a_shared_allocation_is_not_ranked(fleet):
    tiny = fleet(jobs=1, classes="""
[[class]]
name = "any"
ENVIRONMENT
access = ["-p", "shared"]
share = "gpu"
""")  # fmt: skip
    tiny.cbs("submit")
    tiny.wait_for_results(1)
    done = tiny.cbs("collect", "-o", "collected.json")
    assert "1 result from shared nodes: kept, but not ranked" in done.lines
    content = json.loads((tiny.folder / "collected.json").read_text())
    assert content["runs"][0]["allocation"]["exclusive"] is False
    assert content["runs"][0]["allocation"]["not_exclusive"] == "1 of 2 CPUs"
    [metrics] = content["benchmarks"][0]["metrics"].values()
    assert metrics["not_ranked"] == "other jobs could run on the node: this job had 1 of 2 CPUs"


def test_a_controller_that_stops(fleet, cluster):
    tiny = fleet(jobs=3, seconds=15)
    tiny.cbs("submit")
    wait_for(lambda: len(tiny.started) == 3, "all jobs")
    cluster("stop", "controller")
    tiny.forget_queue()
    status, submit = tiny.cbs("status"), tiny.cbs("submit")
    assert len(status.err.splitlines()) == 1
    assert "controller" in status.err
    assert "pending      3" in status.out
    assert submit.code == 1
    assert len(submit.lines) == 1
    tiny.wait_for_results(3)
    cluster("start", "controller")
    assert len(tiny.results()) == 3


def test_a_time_limit_that_is_too_short(fleet, cluster):
    """The job starts once more with twice the limit, if the user asks for it."""
    # Slurm checks limits every 30 s. Twice the limit suffices.
    tiny = fleet(jobs=1, seconds=105, classes="""
[[class]]
name = "any"
ENVIRONMENT
time_limit = "1m"
""")  # fmt: skip
    tiny.cbs("submit")
    [key] = tiny.states()
    ends = tiny.spool / "ends"
    wait_for(lambda: list(ends.glob("*.json")), "the end of the job", 180)
    # Slurm forgets the job, but the node recorded the reason.
    standing = tiny.states()[key]
    assert standing["state"] == "timeout"
    assert standing["detail"] == "the batch reached its time limit of 60 s"
    assert "submitted: 0 jobs" in tiny.cbs("resume").out
    assert "submitted: 1 job " in tiny.cbs("resume", "--longer").out
    tiny.wait_for_results(1, 180)
    [run] = tiny.results()
    assert run["allocation"]["attempt"] == 1
    assert "submitted: 0 jobs" in tiny.cbs("resume", "--longer").out


def test_a_full_queue_is_topped_up(fleet):
    """A job of Slurm submits the rest; nothing of the submitter is alive."""
    options = "max_submitted = 2\nseconds_until_retry = 2\nseconds_between = 0"
    tiny = fleet(jobs=5, seconds=1, options=options)
    done = tiny.cbs("submit")
    assert done.lines == [
        "submitted: 2 jobs in 2 batches",
        "the queue is full: 3 jobs not submitted; a queued job will submit them later",
    ]
    # A second submitter adds no second job of this kind.
    tiny.cbs("submit")
    assert len(tiny.slurm("squeue", "--noheader", "--states=pending", "--format=%j")) <= 3
    tiny.wait_for_results(5, 300)
    assert sorted(tiny.started) == sorted(keys(tiny.results()))


def test_a_race_on_a_node(fleet, kept_environment):
    """The batch runs the real suite."""
    tiny = fleet(jobs=1)
    tiny.write("""
name = "tiny"
engine = "slurm"
canaries = false
[[run]]
name = "models/EXAMPLE_FP32_PT_BATCH1/.+"
backends = ["pt_inductor:eager"]
warmup_iterations = 1
iterations = 2
[[class]]
name = "small"
requires = "+small"
""")
    tiny.variables |= kept_environment | {"SLURM_CONF": tiny.variables["SLURM_CONF"]}
    assert tiny.cbs("submit").out == "submitted: 1 job in 1 batch\n"
    tiny.wait_for_results(1, 300)
    [run] = tiny.results()
    assert run["allocation"]["exclusive"] is True
    assert run["allocation"]["node"] in ("n1", "n2")
    [result] = json.loads((tiny.folder / "collected.json").read_text())["benchmarks"]
    assert result["status"] == "ok"
    assert result["definition"]["backend"] == "pt_inductor"
