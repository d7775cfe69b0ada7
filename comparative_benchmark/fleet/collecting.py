"""Collects finished results of a campaign into one results file."""

import contextlib
import mmap
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Self

import attrs
import msgspec
from filelock import FileLock, Timeout
from msgspec import UNSET

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet.planning import Job, Plan, duration_key
from comparative_benchmark.fleet.spool import Spool, View
from comparative_benchmark.results.record import Document, Status
from comparative_benchmark.results.results_file import ResultsFileError, identity_of
from openxla.benchmark.text import one_line

_LOCK_TIMEOUT_S = 60.0
_CHUNK = 1 << 20
_LARGEST_RESULT = 1 << 30


class _Parts(msgspec.Struct):
    """A results file whose runs and results are not decoded."""

    runs: list[msgspec.Raw]
    benchmarks: list[msgspec.Raw]


class _Owner(msgspec.Struct):
    job: str


class _RunHead(msgspec.Struct):
    run_id: str
    allocation: _Owner | None = None


class _ResultHead(msgspec.Struct):
    run_id: str
    status: str


@attrs.define(kw_only=True)
class Collected:
    """What `collect` did.

    Attributes:
      results: number of added results.
      known: number of results that the file held already.
      jobs: jobs with results, those collected earlier included.
      restarted: keys of added jobs that ended only after a restart or a further attempt.
      damaged: reasons, by file, of results that are not valid; the files are set aside.
      foreign: names of files that belong to no job; they are left alone.
      shared: number of added results of nodes that other jobs could use; they are not ranked.
    """

    results: int = 0
    known: int = 0
    jobs: set[str] = attrs.field(factory=set)
    restarted: set[str] = attrs.field(factory=set)
    damaged: dict[str, str] = attrs.field(factory=dict)
    foreign: list[str] = attrs.field(factory=list)
    shared: int = 0


def collect(plan: Plan, spool: Spool, output: Path) -> Collected:
    """Adds the finished results of a plan's jobs to a results file; twice is the same as once.

    A job whose results are all `ok` is added once, even if two attempts measured it. If a trial of
    a job failed, the runs of its other attempts are added, too.

    Files are copied one at a time, and files of collected jobs are not read again: memory
    and time do not grow with the size of the results.

    Args:
      plan: the plan.
      spool: the spool.
      output: results file to add to; created if it does not exist.

    Raises:
      UsageError: the file cannot be written, or is not a results file; it is unchanged.
    """
    jobs = plan.by_key()
    view = spool.view()
    done = Collected(foreign=list(view.foreign))
    added: set[str] = set()
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(output.parent / f".{output.name}.lock")
        with lock.acquire(timeout=_LOCK_TIMEOUT_S), _Merging(output) as merging:
            done.known = merging.results
            for attempt in sorted(view.finished):
                key = attempt.partition(".")[0]
                if key not in jobs:
                    done.foreign.append(f"results/{attempt}.json")
                elif key in merging.complete:
                    done.jobs.add(key)
                elif _add(attempt, jobs[key], spool, merging, done):
                    added.add(attempt)
            if done.results:
                merging.write()
    except Timeout as error:
        raise UsageError(f"{output} is locked by another process") from error
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror or error}") from error
    _save_durations(spool, view, jobs, added)
    return done


def _add(attempt: str, job: Job, spool: Spool, merging: "_Merging", done: Collected) -> bool:
    """Adds the results of an attempt; returns whether there were new ones."""
    path = spool.result_file(attempt)
    name = f"results/{path.name}"
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_RESULT:
            raise ValueError("not a regular file, or larger than 1 GiB")
        plain = msgspec.json.decode(path.read_bytes())
        document = msgspec.convert(plain, Document)
        _check(document, job)
    except FileNotFoundError:
        return False
    except OSError as error:
        done.damaged[name] = f"cannot be read: {error.strerror or error}"
        return False
    except (ValueError, RecursionError) as error:
        done.damaged[name] = one_line(str(error), 200)
        spool.set_aside(attempt)
        return False
    done.jobs.add(job.key)
    new = {run.run_id for run in document.runs} - merging.known
    # Encoded again: one line each, without duplicate keys.
    for run in plain["runs"]:
        if run["run_id"] in new:
            merging.add_run(msgspec.json.encode(run))
    results = [result for result in plain["benchmarks"] if result["run_id"] in new]
    for result in results:
        merging.add_result(msgspec.json.encode(result))
    if all(result.status is Status.OK for result in document.benchmarks):
        merging.complete.add(job.key)
    else:
        merging.known |= new
    done.results += len(results)
    allocations = [run.allocation for run in document.runs if run.allocation is not UNSET]
    if results and any(item.restarts or item.attempt for item in allocations):
        done.restarted.add(job.key)
    if any(item.exclusive is False for item in allocations):
        done.shared += len(results)
    return bool(results)


def _check(document: Document, job: Job) -> None:
    """Raises `ValueError` if a results file is not the job's, or is not valid in itself."""
    ids = {run.run_id for run in document.runs}
    if len(ids) != len(document.runs):
        raise ValueError("two runs have the same run_id")
    if not all(result.run_id in ids for result in document.benchmarks):
        raise ValueError("a result does not belong to any run")
    if any(run.allocation is UNSET or run.allocation.job != job.key for run in document.runs):
        raise ValueError("the runs belong to another job")
    if len({identity_of(result) for result in document.benchmarks}) < len(document.benchmarks):
        raise ValueError("a run has two results for the same trial")
    if len({result.key for result in document.benchmarks}) < job.trials:
        raise ValueError("results for some trials are missing")


class _Merging:
    """A results file that grows: runs and results go to temporary files, then into the new file.

    Attributes:
      results: number of results that the file held before.
      complete: keys of jobs in the file whose results are all ok; further attempts add nothing.
      known: names of all other runs in the file.
    """

    def __init__(self, output: Path) -> None:
        self._output = output
        # One collector has the lock: the folder of a killed one is removed.
        self._folder = output.parent / f".{output.name}.collecting"
        self.results = 0
        self.complete: set[str] = set()
        self.known: set[str] = set()

    def __enter__(self) -> Self:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        self._runs = (self._folder / "runs").open("wb")
        self._results = (self._folder / "results").open("wb")
        try:
            if self._output.exists():
                self._copy_old()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._runs, self._results):
            with contextlib.suppress(OSError):
                file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add_run(self, raw: bytes | msgspec.Raw) -> None:
        """Adds an encoded run."""
        self._runs.write(b", " if self._runs.tell() else b"")
        self._runs.write(raw)
        self._last_run = raw

    def add_result(self, raw: bytes | msgspec.Raw) -> None:
        """Adds an encoded result."""
        self._results.write(b",\n" if self._results.tell() else b"\n")
        self._results.write(raw)

    def write(self) -> None:
        """Replaces the output atomically."""
        latest = msgspec.json.decode(self._last_run, type=dict[str, msgspec.Raw])
        whole = self._folder / "whole"
        with whole.open("wb") as file:
            file.write(b'{"schema_version": 1, "trigger": ' + bytes(latest["trigger"]))
            file.write(b', "execution_environment": ' + bytes(latest["execution_environment"]))
            file.write(b', "runs": [')
            _append(self._runs, file)
            file.write(b'], "benchmarks": [')
            _append(self._results, file)
            # The end that `ResultsFile.append` expects.
            file.write(b"\n]}\n")
            file.flush()
            os.fsync(file.fileno())
        whole.replace(self._output)

    def _copy_old(self) -> None:
        """Copies the existing file, and learns the jobs that it holds."""
        jobs: dict[str, str | None] = {}
        failed = set()
        run_head, result_head = map(msgspec.json.Decoder, (_RunHead, _ResultHead))
        try:
            with self._output.open("rb") as file:
                # Mapped, because a large file may exceed the memory.
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            parts = msgspec.json.decode(content, type=_Parts)
            for raw in parts.runs:
                run = run_head.decode(raw)
                jobs[run.run_id] = run.allocation and run.allocation.job
                self.add_run(raw)
            for raw in parts.benchmarks:
                result = result_head.decode(raw)
                if result.status != Status.OK.value:
                    failed.add(jobs.get(result.run_id))
                self.add_result(raw)
        except (ValueError, RecursionError) as error:
            raise ResultsFileError(
                f"{self._output} is not a results file: {one_line(str(error))}"
            ) from error
        self.results = len(parts.benchmarks)
        self.complete = {job for job in jobs.values() if job is not None} - failed
        self.known = {run_id for run_id, job in jobs.items() if job not in self.complete}


def _append(source: IO[bytes], target: IO[bytes]) -> None:
    source.flush()
    with Path(source.name).open("rb") as part:
        shutil.copyfileobj(part, target, _CHUNK)


def _save_durations(
    spool: Spool, view: View, jobs: Mapping[str, Job], attempts: Iterable[str]
) -> None:
    """Keeps the durations of newly collected attempts for later plans."""
    durations_s = spool.durations_s()
    for attempt in view.ended.intersection(attempts):
        if (end := spool.read_end(attempt)) is not None and end.wall_s:
            job = jobs[attempt.partition(".")[0]]
            durations_s[duration_key(job.machine_class, job.arguments)] = end.wall_s
    # Only estimates: in a spool that others own, they are not updated.
    with contextlib.suppress(OSError):
        spool.save_durations_s(durations_s)
