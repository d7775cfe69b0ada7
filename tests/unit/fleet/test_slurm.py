"""Slurm's outputs, of several versions and in all states; no Slurm is needed."""

import os
import shlex
import subprocess
from pathlib import Path

import attrs
import pytest

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet.description import MachineClass
from comparative_benchmark.fleet.engines import (
    EngineError,
    FullError,
    QueueState,
    RefusedError,
    Submission,
)
from comparative_benchmark.fleet.engines import slurm as engine
from comparative_benchmark.fleet.host_queue import batch_script

SUBMISSION = Submission(
    name="cbs-x-1",
    file=Path("/spool/batches/cbs-x-1.json"),
    environment=None,
    setup=None,
    access=("-A", "bench"),
    nodes=("n1",),
    others=("n2", "n3"),
    time_limit_s=61,
    share="node",
    log=Path("/spool/logs/cbs-x-1.log"),
)

# Of 22.05 and of 24.05; a reason contains an equals sign and spaces.
NODES = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=2 CPUEfctv=2 CPUTot=2 CPULoad=2.75 \
AvailableFeatures=small,avx512 ActiveFeatures=small Gres=(null) State=ALLOCATED ThreadsPerCore=1 \
Partitions=cpu,debug \
OS=Linux 6.1 #1 SMP CfgTRES=cpu=2,mem=1M,billing=2 AllocTRES=cpu=2
NodeName=n2 Arch=aarch64 CPUTot=64 AvailableFeatures=(null) Gres=gpu:a100:8(S:0-1) \
Partitions=gpu \
State=MIXED+PLANNED ThreadsPerCore=2 Reason=mem=low, ask us [root@2026-11-01T00:00:00]
NodeName=n3 Arch=x86_64 CPUTot=4 AvailableFeatures=(null) Gres=gpu:2 State={state}
"""


def test_nodes():
    n1, n2, n3 = engine.parse_nodes(NODES.format(state="IDLE"))
    assert (n1.name, n1.features) == ("n1", {"cpu", "small", "avx512"})
    assert n2.features == {"cpu", "smt", "gpu"}
    assert n2.properties == {"arch": "aarch64", "device": "a100"}
    assert n3.features == {"cpu", "gpu"}
    assert n3.properties == {"arch": "x86_64"}
    assert all(node.up for node in (n1, n2, n3))
    assert [n1.partitions, n2.partitions] == [{"cpu", "debug"}, {"gpu"}]


@pytest.mark.parametrize(
    ("access", "names"),
    [
        ((), ["n1", "n2", "n3"]),
        (("--account=ml", "--exclusive"), ["n1", "n2", "n3"]),
        (("--partition=gpu", "--gres=gpu:a100:8"), ["n2"]),
        (("-A", "ml", "-p", "debug,gpu"), ["n1", "n2"]),
        (("-pcpu",), ["n1"]),
        (("--partition", "other"), []),
    ],
)
def test_a_class_has_nodes_of_its_partitions_only(access, names):
    allows = MachineClass(name="some", access=access).allows
    nodes = engine.parse_nodes(NODES.format(state="IDLE"))
    assert [node.name for node in nodes if allows(node)] == names


@pytest.mark.parametrize(
    "state",
    [
        *("DOWN", "DOWN*", "IDLE*", "IDLE+DRAIN", "MIXED+DRAIN", "IDLE+NOT_RESPONDING", "UNKNOWN"),
        *("DOWN*+DRAIN", "ALLOCATED+FAIL", "IDLE+INVALID_REG"),
    ],
)
def test_nodes_that_take_no_jobs(state):
    assert not engine.parse_nodes(NODES.format(state=state))[2].up


@pytest.mark.parametrize(
    "state",
    [
        "IDLE",
        "ALLOCATED",
        "COMPLETING",
        "IDLE~",
        "IDLE+CLOUD+POWERED_DOWN",
        "IDLE+PLANNED",
        "IDLE#",
    ],
)
def test_nodes_that_take_jobs_now_or_later(state):
    assert engine.parse_nodes(NODES.format(state=state))[2].up


@pytest.mark.parametrize(
    ("line", "state", "reason"),
    [
        ("PENDING||Priority", QueueState.PENDING, ""),
        ("PENDING||BeginTime", QueueState.PENDING, ""),
        ("PENDING||PartitionTimeLimit", QueueState.PENDING, "PartitionTimeLimit"),
        (
            "PENDING||ReqNodeNotAvail, UnavailableNodes:n1|n2",
            QueueState.PENDING,
            "ReqNodeNotAvail, UnavailableNodes:n1|n2",
        ),
        ("PENDING||launch failed requeued held", QueueState.LOST, "launch failed requeued held"),
        ("CONFIGURING|n1|None", QueueState.PENDING, ""),
        ("RUNNING|n1|None", QueueState.RUNNING, ""),
        ("COMPLETING|n1|None", QueueState.RUNNING, ""),
        ("SUSPENDED|n1|None", QueueState.RUNNING, ""),
        ("COMPLETED|n1|None", QueueState.ENDED, ""),
        ("FAILED|n1|NonZeroExitCode", QueueState.ENDED, "NonZeroExitCode"),
        ("OUT_OF_MEMORY|n1|OutOfMemory", QueueState.ENDED, "OutOfMemory"),
        ("TIMEOUT|n1|TimeLimit", QueueState.TIMEOUT, "TimeLimit"),
        ("NODE_FAIL|n1|NodeDown", QueueState.LOST, "NodeDown"),
        ("PREEMPTED|n1|None", QueueState.LOST, ""),
        ("CANCELLED|n1|None", QueueState.CANCELLED, ""),
        ("STATE_OF_THE_FUTURE|n1|None", QueueState.PENDING, ""),
    ],
)
def test_states(line, state, reason):
    state_name, _, rest = line.partition("|")
    node, _, why = rest.partition("|")
    printed = f"other|6|RUNNING|n1|N/A|None\ncbs-x-1|7|{state_name}|{node}|1800000000|{why}\n"
    [(name, entry)] = engine.parse_queue(printed, "cbs-x-").items()
    assert (name, entry.id) == ("cbs-x-1", "7")
    assert (entry.state, entry.reason) == (state, reason)
    assert entry.node == ("n1" if rest.startswith("n1") else None)
    assert entry.ended_at == (1.8e9 if state is QueueState.ENDED else None)


def test_the_states_of_every_version_have_a_meaning():
    """Those of `man squeue`, JOB STATE CODES, of 20.02 to 24.05."""
    states = (
        "BOOT_FAIL CANCELLED COMPLETED CONFIGURING COMPLETING DEADLINE FAILED NODE_FAIL "
        "OUT_OF_MEMORY PENDING PREEMPTED RUNNING RESV_DEL_HOLD REQUEUE_FED REQUEUE_HOLD REQUEUED "
        "RESIZING REVOKED SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED SUSPENDED TIMEOUT"
    )
    assert set(states.split()) == set(engine._STATES)


@pytest.mark.parametrize(
    ("job", "node", "exclusive", "figures"),
    [
        ("NumCPUs=2", "CPUTot=2", True, ""),
        ("NumCPUs=1", "CPUTot=2", False, "1 of 2 CPUs"),
        # Hyper-threads count as CPUs on both sides.
        ("NumCPUs=64", "CPUTot=128", False, "64 of 128 CPUs"),
        # Two cores belong to Slurm's daemons.
        ("NumCPUs=62", "CPUTot=64 CPUEfctv=62", True, ""),
        ("NumCPUs=64 TRES=cpu=64,gres/gpu=1", "CPUTot=64 CfgTRES=cpu=64,gres/gpu=8", False,
         "1 of 8 GPUs"),
        ("NumCPUs=64 TRES=cpu=64,node=1", "CPUTot=64 CfgTRES=cpu=64,gres/gpu=8", False,
         "0 of 8 GPUs"),
        ("NumCPUs=64 ReqTRES=cpu=1 AllocTRES=cpu=64,gres/gpu=8,gres/gpu:a100=8",
         "CPUTot=64 CfgTRES=cpu=64,gres/gpu=8", True, ""),
        ("NumCPUs=64 AllocTRES=cpu=64,gres/gpu:a100=2,gres/gpu:h100=2",
         "CPUTot=64 CfgTRES=cpu=64,gres/gpu=4", True, ""),
        ("NumCPUs=4 NumNodes=2", "CPUTot=2", None, ""),
        ("NumCPUs=1-4", "CPUTot=2", None, ""),
        ("", "CPUTot=2", None, ""),
    ],
)  # fmt: skip
def test_exclusive_use_is_arithmetic(job, node, exclusive, figures):
    values = engine._values
    assert engine.compare_with_node(values(job), values(node)) == (exclusive, figures)


def test_options():
    options = engine.sbatch_options(SUBMISSION)
    assert {"--time=2", "--exclusive", "--exclude=n2,n3", "--nodes=1", "--requeue"} <= {*options}
    shared = engine.sbatch_options(attrs.evolve(SUBMISSION, share="gpu", others=()))
    assert not any(option.startswith(("--exclu", "--mem")) for option in shared)


@pytest.mark.parametrize("is_folder", [True, False])
def test_the_environment_may_exist_only_on_the_node(tmp_path, is_folder):
    """The script chooses between a folder and an interpreter; names may have spaces."""
    python = tmp_path / "an env" / ("bin/python" if is_folder else "")
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    file = Path("/a spool/batch.json")
    script = batch_script(str(tmp_path / "an env"), None, file)
    done = subprocess.run(["sh"], input=script, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-3:] == ["fleet", "node", str(file)]


def test_the_first_batch_makes_the_environment(tmp_path):
    """Batches that start together wait for it; a failed attempt is made again."""
    environment = tmp_path / "new" / "env"
    python = environment / "bin" / "python"
    fails = tmp_path / "fails"
    setup = (
        f"test ! -e {fails} && mkdir -p {python.parent} && echo made >> {tmp_path}/log && sleep 0.2"
        f" && printf '#!/bin/sh\\necho ran\\n' > {python} && chmod +x {python}"
    )
    script = batch_script(str(environment), setup, Path("batch.json"))
    fails.touch()
    assert subprocess.run(["sh"], input=script, text=True, check=False).returncode
    fails.unlink()
    together = [
        subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert [process.communicate()[0] for process in together] == ["ran\n"] * 3
    assert (tmp_path / "log").read_text() == "made\n"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Makes programs of Slurm that print, and an engine that uses them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def program(name, *, out="", err="", code=0, sleep=0):
        path = folder / name
        lines = [
            "#!/bin/sh",
            f'echo "$@" >> {tmp_path}/{name}.calls',
            f"printf %s {shlex.quote(out)}",
            f"printf %s {shlex.quote(err)} >&2",
            *([f"exec sleep {sleep}"] if sleep else []),
            f"exit {code}",
        ]
        path.write_text("\n".join(lines))
        path.chmod(0o755)

    def calls(name):
        path = tmp_path / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []

    def make(**options):
        return engine.SlurmEngine(options=options, folder=tmp_path / "fleet", hosts=())

    make.program, make.calls = program, calls
    return make


FAILED = "sbatch: error: Batch job submission failed: "
POLICY = (
    f"{FAILED}Job violates accounting/QOS policy (job submit limit, user's size and/or time "
    "limits)\n"
)


@pytest.mark.parametrize(
    ("err", "error", "text"),
    [
        (
            (
                "sbatch: error: invalid partition specified: nowhere\n"
                f"{FAILED}Invalid partition name specified\n"
            ),
            RefusedError,
            (
                "sbatch: invalid partition specified: nowhere; Batch job submission failed: "
                "Invalid partition name specified"
            ),
        ),
        (f"{FAILED}Invalid account or account/partition combination specified\n", RefusedError, ""),
        (f"{FAILED}Invalid feature specification\n", RefusedError, ""),
        (f"{FAILED}Requested node configuration is not available\n", RefusedError, ""),
        (
            "sbatch: unrecognized option '--nope'\nTry \"sbatch --help\" for more information\n",
            RefusedError,
            "sbatch: unrecognized option '--nope'",
        ),
        (f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}", FullError, ""),
        (f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{POLICY}", FullError, ""),
        (POLICY, FullError, ""),
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{POLICY}", RefusedError, "QOSMaxWall"),
        (f"{FAILED}Resource temporarily unavailable\n", FullError, ""),
        (
            f"{FAILED}Unable to contact slurm controller (connect failure)\n",
            EngineError,
            "Unable to contact",
        ),
        (f"{FAILED}Socket timed out on send/recv operation\n", EngineError, ""),
        ("", RefusedError, "sbatch: exit code 1"),
    ],
)
def test_refusals(slurm, err, error, text):
    slurm.program("sbatch", err=err, code=1)
    with pytest.raises(error) as caught:
        slurm().submit(SUBMISSION)
    assert type(caught.value) is error
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("out", ["123\n", "123;cluster\n"])
def test_a_submission(slurm, out):
    slurm.program("sbatch", out=out, err="sbatch: Please use fewer nodes.\n")
    assert slurm().submit(SUBMISSION) == "123"
    [call] = slurm.calls("sbatch")
    assert call.endswith("-A bench")


def test_a_controller_with_too_many_jobs(slurm, monkeypatch):
    """sbatch waits for two minutes before it gives up."""
    monkeypatch.setattr(engine, "_ANSWERING_S", 0.5)
    waiting = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
    slurm.program("sbatch", err=waiting, sleep=60)
    with pytest.raises(FullError):
        slurm().submit(SUBMISSION)
    slurm.program("squeue", sleep=60)
    with pytest.raises(EngineError, match="squeue did not respond"):
        slurm().poll("cbs-")


def test_without_slurm(slurm, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EngineError, match="scontrol is not installed"):
        slurm().nodes()


def test_a_failure_of_squeue_is_one_line(slurm):
    slurm.program("squeue", err="squeue: fatal: Could not establish a configuration\n", code=1)
    with pytest.raises(EngineError, match=r"^squeue: Could not establish a configuration$"):
        slurm().poll("cbs-")


def test_cancelling_asks_once(slurm):
    """By ids of this moment, since a `scancel` for each of 1,000 names takes minutes."""
    queue = "".join(f"cbs-{n}|{n}|RUNNING|n1|N/A|None\n" for n in range(700))
    slurm.program("squeue", out=queue)
    slurm.program("scancel")
    slurm().cancel([f"cbs-{n}" for n in range(600)] + ["cbs-that-ended"])
    first, second = slurm.calls("scancel")
    assert first.split() == ["--quiet", *map(str, range(500))]
    assert second.split() == ["--quiet", *map(str, range(500, 600))]


def test_all_jobs_with_a_name_are_cancelled(slurm):
    """A job that submits the rest has the name of former ones."""
    states = ("COMPLETED", "RUNNING", "PENDING")
    queue = "".join(f"cbs-submit|{n}|{state}|||None\n" for n, state in enumerate(states))
    slurm.program("squeue", out=queue)
    slurm.program("scancel")
    slurm().cancel(["cbs-submit"])
    assert slurm.calls("scancel") == ["--quiet 0 1 2"]


def test_nothing_to_cancel(slurm):
    slurm.program("squeue")
    slurm.program("scancel", code=1)
    slurm().cancel(["cbs-1"])
    assert slurm.calls("scancel") == []


@pytest.mark.parametrize(
    ("options", "config", "room"),
    [
        ({}, "MaxJobCount             = 10000\n", 9997),
        ({"max_submitted": 5}, "MaxJobCount             = 10000\n", 2),
        ({"max_submitted": 2}, "MaxJobCount = 10000\n", 0),
        ({}, "Nothing = 1\n", None),
    ],
)
def test_room(slurm, options, config, room):
    slurm.program("scontrol", out=config)
    assert slurm(**options).room(3) == room


def test_one_job_waits_to_submit_the_rest(slurm):
    slurm.program("squeue")
    slurm.program("sbatch", out="1\n")
    options = {"seconds_until_retry": 60, "access": ["-A", "bench"]}
    assert slurm(**options).continue_later(["cbs", "fleet"], "cbs-submit")
    [call] = slurm.calls("sbatch")
    assert "--begin=now+60 " in call
    assert call.endswith("-A bench")
    slurm.program("squeue", out="12\n")
    assert slurm().continue_later(["cbs", "fleet"], "cbs-submit")
    assert len(slurm.calls("sbatch")) == 1
    slurm.program("squeue")
    slurm.program("sbatch", err="sbatch: error: Invalid account\n", code=1)
    assert not slurm().continue_later(["cbs", "fleet"], "cbs-submit")


def test_jobs_of_other_submitters_are_polled(slurm, tmp_path):
    """Several users may share a spool."""
    slurm.program("squeue")
    assert f"--user={os.getuid()}" in str([slurm().poll("cbs-"), *slurm.calls("squeue")])
    folder = tmp_path / "fleet" / "submitted"
    folder.mkdir(parents=True)
    (folder / "other.jsonl").touch()
    if os.getuid() != 0:
        pytest.skip("only root can give a file to another user")
    os.chown(folder / "other.jsonl", 1234, -1)
    slurm().poll("cbs-")
    assert "--user=0,1234" in slurm.calls("squeue")[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_submited": 1}, "did you mean"),
        ({"max_submitted": "many"}, "must be a number from 0 to 1000000, got 'many'"),
        ({"seconds_between": -1}, "seconds_between must be a number"),
        ({"access": "-A x"}, "access must be a list of strings"),
    ],
)
def test_wrong_options(slurm, options, message):
    with pytest.raises(UsageError, match=message):
        slurm(**options)
