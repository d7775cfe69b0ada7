"""Executes a batch on a node: an ordinary `cbs run --resume` for each job."""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal, cast

import attrs
import msgspec
from msgspec import UNSET

from comparative_benchmark.analysis.machine.host import default_threads, python_environment
from comparative_benchmark.analysis.roofline.ceilings import Budget, ask, buffer_bytes
from comparative_benchmark.errors import EXIT_INTERRUPTED, EXIT_UNFINISHED
from comparative_benchmark.fleet.engines.slurm import exclusive_use
from comparative_benchmark.fleet.spool import UNREADABLE, Attempt, Batch, End, Spool, Work
from comparative_benchmark.results import journal
from comparative_benchmark.results.fleet import Allocation
from comparative_benchmark.results.record import Status
from comparative_benchmark.results.results_file import ResultsFileError, plain, read_document
from openxla.benchmark.files import new_file, write_atomically
from openxla.benchmark.text import one_line

_CANARIES_S = 60.0
# An interrupt after this part of the time limit comes from the limit.
_MOST_OF_THE_LIMIT = 0.9


def run_batch(spool: Spool, batch: Batch) -> int:
    """Executes the jobs of a batch that have no results yet; returns the number of failed jobs.

    A job whose results exist is left out, so that a batch that starts twice measures once. A batch
    that starts again continues its unfinished job.
    """
    batch_started = time.monotonic()
    spool.create()
    where = _allocation(batch)
    difference = _other_environment(spool, batch, where)
    failed = 0
    for work in batch.jobs:
        attempt = Attempt(work.key, work.attempt)
        if spool.has_result(attempt):
            continue
        started = time.monotonic()
        try:
            reason = difference or _run(spool, work, where)
        except KeyboardInterrupt:
            if time.monotonic() - batch_started > _MOST_OF_THE_LIMIT * batch.time_limit_s:
                _record_time_limit(spool, batch, work, where)
            raise
        end = End(
            ending="failed" if reason else "done",
            reason=reason,
            node=where.node,
            at=spool.now(),
            wall_s=time.monotonic() - started,
        )
        spool.end(attempt, end)
        failed += bool(reason)
    return failed


def _record_time_limit(spool: Spool, batch: Batch, work: Work, where: Allocation) -> None:
    """Records the ends of a job that was interrupted at the time limit, and of those after it.

    Schedulers soon forget why a batch ended.
    """
    ended = End(
        ending="timeout",
        reason=f"the batch reached its time limit of {batch.time_limit_s} s",
        node=where.node,
        at=spool.now(),
    )
    spool.end(Attempt(work.key, work.attempt), ended)
    reason = "the batch reached its time limit before this job started"
    for later in batch.jobs[batch.jobs.index(work) + 1 :]:
        spool.end(
            Attempt(later.key, later.attempt),
            attrs.evolve(ended, ending="cancelled", reason=reason),
        )


def _run(spool: Spool, work: Work, where: Allocation) -> str:
    """Runs a job and stores its results; returns why it failed, or an empty text."""
    folder = spool.work_folder(work.key)
    folder.mkdir(parents=True, exist_ok=True)
    results, log_file = folder / "results.json", folder / "log.txt"
    allocation = attrs.evolve(where, job=work.key, repeat=work.repeat, attempt=work.attempt)
    _separate_earlier_work(results, allocation)
    command = [
        *(sys.executable, "-P", "-m", "comparative_benchmark", "run", *work.arguments),
        *("--resume", "--busy", "-o", str(results)),
    ]
    with log_file.open("ab") as log:
        # It inherits the host's locks: they stay if this process is killed.
        code = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, close_fds=False
        ).returncode
    if code < 0 or code == EXIT_INTERRUPTED:
        # The scheduler ends the batch; a restart continues this job.
        raise KeyboardInterrupt
    if code == EXIT_UNFINISHED:
        return "the budget ended before all trials ran"
    try:
        measured = len({result.key for result in read_document(results).benchmarks})
    except ResultsFileError:
        return f"cbs run exited with {code}: {_last_line(log_file)}"
    if measured < work.trials:
        return f"only {measured} of {work.trials} trials have results: {_last_line(log_file)}"
    target = spool.result_file(Attempt(work.key, work.attempt).name)
    write_atomically(target, json.dumps(marked(results, allocation)) + "\n")
    return ""


def _separate_earlier_work(results: Path, where: Allocation) -> None:
    """Marks a job's earlier results with their allocation, and stores this attempt's allocation.

    Another node does not continue an unfinished race: competitors must run on the same machine.
    """
    file = results.with_name("allocation.json")
    earlier = where
    with contextlib.suppress(*UNREADABLE):
        earlier = msgspec.json.decode(file.read_bytes(), type=Allocation)
    if (earlier.node, earlier.exclusive) != (where.node, where.exclusive):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(journal.folder_of(results))
    with contextlib.suppress(ResultsFileError):
        read_document(results)
        write_atomically(results, json.dumps(marked(results, earlier)) + "\n")
    write_atomically(file, msgspec.json.encode(where))


def marked(path: Path, where: Allocation) -> dict[str, Any]:
    """Returns a results file with the allocation in each run that has none.

    Results of these runs are kept, but not ranked, if other jobs may have used the node.
    """
    document: dict[str, Any] = json.loads(path.read_bytes())
    new = {run["run_id"] for run in document["runs"] if "allocation" not in run}
    for run in document["runs"]:
        run.setdefault("allocation", plain(where))
    reason = ""
    if where.exclusive is False:
        reason = f"other jobs could run on the node: this job had {where.not_exclusive}"
    elif where.exclusive is None and where.engine == "slurm":
        reason = "Slurm did not report whether other jobs could run on the node"
    if reason:
        for result in document["benchmarks"]:
            if result["run_id"] in new and result["status"] == Status.OK.value:
                for metrics in result["metrics"].values():
                    metrics.setdefault("not_ranked", reason)
    return document


def _allocation(batch: Batch) -> Allocation:
    """Returns what is known about this machine and the batch's share of it."""
    exclusive, figures = exclusive_use()
    return Allocation(
        fleet=batch.fleet,
        campaign=batch.campaign,
        machine_class=batch.machine_class,
        job="batch",
        # The host name of a Kubernetes pod is not the name of its node.
        node=(
            os.environ.get("CBS_FLEET_NODE") or os.environ.get("SLURMD_NODENAME") or platform.node()
        ),
        restarts=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
        engine=batch.engine,
        engine_id=os.environ.get("SLURM_JOB_ID", ""),
        exclusive=exclusive,
        not_exclusive=figures or UNSET,
        host=_host(batch.host),
        environment_sha256=environment_sha256(),
        canaries=measure_canaries() if batch.canaries else {},
    )


def environment_sha256() -> str:
    """Returns the digest of the interpreter's version and all installed packages."""
    packages = [f"{item['name'].lower()}=={item['version']}" for item in python_environment()]
    text = "\n".join([platform.python_version(), platform.machine(), *sorted(packages)])
    return hashlib.sha256(text.encode()).hexdigest()


def measure_canaries() -> dict[str, float]:
    """Measures two programs that never change: a matrix product, and a copy beyond all caches.

    Returns `compute` in GFLOP/s and `bandwidth` in GB/s, without those that cannot be measured.
    """
    budget = Budget.of(_CANARIES_S)
    threads = str(default_threads().number)
    questions = {
        "compute": (("gemm", "numpy", "fp32", threads), "gflops"),
        "bandwidth": (("copy", str(buffer_bytes()), threads), "gb_per_s"),
    }
    rates = {}
    for name, (arguments, field) in questions.items():
        values = ask("_cpu_rates", arguments, budget).values or {}
        if isinstance(rate := values.get(field), int | float) and rate > 0:
            rates[name] = float(rate)
    return rates


def _other_environment(spool: Spool, batch: Batch, where: Allocation) -> str:
    """Returns how the environment differs from the class's first node; empty if equal."""
    path = spool.folder / "environments" / f"{batch.machine_class}.{batch.campaign or 'first'}.json"
    path.parent.mkdir(exist_ok=True)
    ours: dict[str, Any] = {
        "node": where.node,
        "sha256": where.environment_sha256,
        "python": platform.python_version(),
        "packages": {item["name"].lower(): item["version"] for item in python_environment()},
    }
    with contextlib.suppress(FileExistsError), new_file(path, overwrite=False) as temporary:
        temporary.write_text(json.dumps(ours), encoding="utf-8")
    first: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if first["sha256"] == where.environment_sha256:
        return ""
    others = [("python", first["python"], ours["python"])] + [
        (name, first["packages"].get(name, "missing"), ours["packages"].get(name, "missing"))
        for name in sorted({*first["packages"], *ours["packages"]})
    ]
    differing = [
        f"{name} {here} instead of {there}" for name, there, here in others if here != there
    ]
    shown = ", ".join(differing[:3]) + (" ..." if len(differing) > 3 else "")
    return f"the environment differs from node {first['node']}: {shown}"


def _host(stated: str) -> Literal["whole", "shared", "unknown"]:
    """Returns the stated kind; without one, a machine without a hypervisor is a whole host."""
    if stated == "unknown":
        with contextlib.suppress(OSError):
            flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
            return "unknown" if " hypervisor" in flags else "whole"
    return cast(Literal["whole", "shared", "unknown"], stated)


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return one_line(lines[-1], 300) if lines else "no output"
