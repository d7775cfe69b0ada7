"""Collects finished results of a campaign into one results file."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import attrs
import msgspec
from filelock import FileLock, Timeout
from msgspec import UNSET

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet.planning import Job, Plan, duration_key
from comparative_benchmark.fleet.spool import Spool, View
from comparative_benchmark.results.record import Document, Run
from comparative_benchmark.results.results_file import ResultsFileError
from openxla.benchmark.files import new_file
from openxla.benchmark.text import one_line

_LOCK_TIMEOUT_S = 60.0
_CHUNK = 1 << 20


class _Parts(msgspec.Struct):
    """A results file whose runs and results stay as they are."""

    schema_version: int
    trigger: msgspec.Raw
    execution_environment: msgspec.Raw
    runs: list[msgspec.Raw]
    benchmarks: list[msgspec.Raw]


class _RunId(msgspec.Struct):
    run_id: str


@attrs.define(kw_only=True)
class Collected:
    """What `collect` did.

    Attributes:
      results: number of added results.
      known: number of results that the file held already.
      jobs: jobs with results, those collected earlier included.
      restarted: keys of jobs that ended only after a restart or a further attempt.
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

    Runs that the file holds are left out, so a job that two attempts measured adds each run once.
    Files are copied one at a time: memory does not grow with their number, except for the names of
    runs.

    Args:
      plan: the plan.
      spool: the spool.
      output: results file to add to; created if it does not exist.

    Raises:
      UsageError: the file cannot be written, or is not a results file.
    """
    jobs = plan.by_key()
    view = spool.view()
    done = Collected(foreign=list(view.foreign))
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(output.parent / f".{output.name}.lock")
        with lock.acquire(timeout=_LOCK_TIMEOUT_S), _Merging(output) as merging:
            for attempt in sorted(view.finished):
                _add(attempt, jobs, spool, merging, done)
            if done.results:
                merging.write()
    except Timeout as error:
        raise UsageError(f"{output} is locked by another process") from error
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror or error}") from error
    _save_durations(spool, view, jobs, done.jobs)
    return done


def _add(
    attempt: str,
    jobs: Mapping[str, Job],
    spool: Spool,
    merging: "_Merging",
    done: Collected,
) -> None:
    key = attempt.partition(".")[0]
    path = spool.result_file(attempt)
    if key not in jobs:
        done.foreign.append(f"results/{path.name}")
        return
    try:
        content = path.read_bytes()
        document = msgspec.json.decode(content, type=Document)
        _check(document, jobs[key])
        parts = msgspec.json.decode(content, type=_Parts)
    except FileNotFoundError:
        return
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        done.damaged[f"results/{path.name}"] = one_line(str(error), 200)
        spool.set_aside(attempt)
        return
    done.jobs.add(key)
    allocations = [run.allocation for run in document.runs if run.allocation is not UNSET]
    if any(item.restarts or item.attempt for item in allocations):
        done.restarted.add(key)
    new = [run.run_id not in merging.known for run in document.runs]
    added = {run.run_id for run, is_new in zip(document.runs, new, strict=True) if is_new}
    for raw, is_new in zip(parts.runs, new, strict=True):
        if is_new:
            merging.add_run(raw)
    for result, raw in zip(document.benchmarks, parts.benchmarks, strict=True):
        if result.run_id in added:
            merging.add_result(raw)
            done.results += 1
            exclusive = {item.exclusive for item in allocations}
            done.shared += False in exclusive
        else:
            done.known += 1
    merging.known |= added


def _check(document: Document, job: Job) -> None:
    """Raises `ValueError` if a results file is not the job's."""
    ids = {run.run_id for run in document.runs}
    if not all(result.run_id in ids for result in document.benchmarks):
        raise ValueError("a result belongs to no run")
    owners = {run.allocation.job for run in document.runs if run.allocation is not UNSET}
    if owners != {job.key}:
        raise ValueError("its runs belong to another job")
    if len({result.key for result in document.benchmarks}) < job.trials:
        raise ValueError("results of some trials are missing")


class _Merging:
    """A results file that grows: runs and results go to temporary files, then into the new file."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._folder = Path(tempfile.mkdtemp(prefix=".collecting.", dir=output.parent))
        self._runs = (self._folder / "runs").open("wb")
        self._results = (self._folder / "results").open("wb")
        self._last_run = b""
        self.known: set[str] = set()

    def __enter__(self) -> Self:
        if self._output.exists():
            try:
                parts = msgspec.json.decode(self._output.read_bytes(), type=_Parts)
            except msgspec.MsgspecError as error:
                self.__exit__()
                raise ResultsFileError(f"{self._output} is not a results file: {error}") from error
            for raw in parts.runs:
                self.add_run(raw)
                self.known.add(msgspec.json.decode(raw, type=_RunId).run_id)
            for raw in parts.benchmarks:
                self.add_result(raw)
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._runs, self._results):
            with contextlib.suppress(OSError):
                file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add_run(self, raw: msgspec.Raw) -> None:
        """Adds a run as it is written in its file."""
        self._runs.write((b", " if self._runs.tell() else b"") + bytes(raw))
        self._last_run = bytes(raw)

    def add_result(self, raw: msgspec.Raw) -> None:
        """Adds a result as it is written in its file."""
        self._results.write((b",\n" if self._results.tell() else b"\n") + bytes(raw))

    def write(self) -> None:
        """Replaces the output atomically."""
        latest = msgspec.json.decode(self._last_run, type=dict[str, msgspec.Raw])
        with new_file(self._output) as temporary, temporary.open("wb") as file:
            file.write(b'{"schema_version": 1, "trigger": ' + bytes(latest["trigger"]))
            file.write(b', "execution_environment": ' + bytes(latest["execution_environment"]))
            file.write(b', "runs": [')
            self._copy(self._runs, file)
            file.write(b'], "benchmarks": [')
            self._copy(self._results, file)
            # The end that `ResultsFile.append` expects.
            file.write(b"\n]}\n")

    @staticmethod
    def _copy(source: Any, target: Any) -> None:
        source.flush()
        with Path(source.name).open("rb") as part:
            shutil.copyfileobj(part, target, _CHUNK)


def _save_durations(
    spool: Spool, view: View, jobs: Mapping[str, Job], collected: Iterable[str]
) -> None:
    """Keeps the durations of finished jobs for later plans."""
    durations_s = spool.durations_s()
    wanted = set(collected)
    for attempt in view.ended:
        key = attempt.partition(".")[0]
        if key in wanted and (end := spool.read_end(attempt)) is not None and end.wall_s:
            job = jobs[key]
            durations_s[duration_key(job.machine_class, job.arguments)] = end.wall_s
    spool.save_durations_s(durations_s)


def runs_by_node(document: Document, say: Callable[[str], None]) -> dict[str, list[Run]]:
    """Returns the runs of each node; reports classes whose nodes have different environments."""
    nodes: dict[str, list[Run]] = {}
    environments: dict[str, set[str]] = {}
    for run in _allocated(document.runs):
        assert run.allocation is not UNSET
        nodes.setdefault(run.allocation.node, []).append(run)
        digests = environments.setdefault(run.allocation.machine_class, set())
        digests.add(run.allocation.environment_sha256)
    for name, digests in environments.items():
        if len(digests) > 1:
            say(f"class {name}: its nodes have {len(digests)} different environments")
    return nodes


def _allocated(runs: Iterable[Run]) -> Iterator[Run]:
    return (run for run in runs if run.allocation is not UNSET)
