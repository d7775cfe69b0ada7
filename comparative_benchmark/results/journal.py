"""Journal of a running race: its processes, on disk before the results file holds their trials.

The results of a race are written when it ends, after minutes or hours. Until then
`<results>.journal/<run id>.jsonl` records them: a line for each round of a process that is being
measured, then one for the finished process. `--resume` reads the journal of an interrupted run, so
at most one round is lost.

The first line holds the settings of the run; each other line is an `Entry`. A run locks its
journal, empties it whenever results are written, and removes it at the end. If the file is moved or
removed during the run, a new one is written.

The processes of a race that ended undecided stay in `<run id>.undecided.jsonl`, although their
results are stored, so that more processes can be added to them.
"""

import contextlib
import fcntl
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import attrs
import msgspec

from comparative_benchmark.analysis.machine.worker_settings import recorded_variables
from comparative_benchmark.backends.api import OutputMode
from comparative_benchmark.results.outcome import ProcessRecord, TrialFacts, sound_and_void
from comparative_benchmark.results.record import ExecutionEnvironment, ResultKey
from comparative_benchmark.results.results_file import ResultsFileError
from openxla.benchmark.text import encodable_json

# Differences are listed by name; of many packages, only the first few.
_MOST_NAMED = 4

_UNDECIDED = ".undecided.jsonl"
# Settings that control when a race stops but not how a process is measured.
_STOPPING = frozenset({"goal", "effect", "min_processes", "max_processes", "trial_budget_s"})


@attrs.frozen(kw_only=True)
class Settings:
    """Settings that all processes of a trial must share.

    Attributes:
      sampling: the sampling rule, with its name as `rule`.
      outputs: the requested handling of outputs.
      variables: environment variables that can change speed or numbers; None in older journals.
      joined: interrupted runs that this run resumes; trials that this run stores count as stored
        for them.
    """

    run_id: str
    device: str
    sampling: dict[str, Any]
    execution_environment: ExecutionEnvironment
    outputs: OutputMode | None = None
    variables: dict[str, str] | None = None
    joined: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        run_id: str,
        device: str,
        sampling: object,
        environment: ExecutionEnvironment,
        outputs: OutputMode | None = None,
    ) -> Self:
        """Returns the settings of a run."""
        rule = msgspec.json.decode(msgspec.json.encode(sampling))
        return cls(
            run_id=run_id,
            device=device,
            sampling={"rule": type(sampling).__name__, **rule},
            execution_environment=environment,
            outputs=outputs,
            variables=recorded_variables(os.environ),
        )

    def differences(self, now: "Settings", *, stopping: bool = True) -> list[str]:
        """Returns descriptions of the differences; empty if the processes may be joined.

        Args:
          now: the settings of the run that would join the processes.
          stopping: whether to compare settings that control when a race stops.
        """
        ignored = frozenset() if stopping else _STOPPING
        rules = [
            {name: value for name, value in settings.sampling.items() if name not in ignored}
            for settings in (self, now)
        ]
        here, there = self.execution_environment, now.execution_environment
        shared = sorted(here.environments.keys() & there.environments.keys())
        found = _differences("", _facts(self, shared), _facts(now, shared))
        if self.variables is not None:
            found += _differences("", self.variables, now.variables or {})
        found += _differences("sampling: ", *rules)
        environments: list[tuple[str, Any, Any]] = [("", here, there)]
        environments += [
            (f"{name}: ", here.environments[name], there.environments[name]) for name in shared
        ]
        for prefix, *pair in environments:
            found += _differences(prefix, *(_versions(one.python_environment) for one in pair))
        return found


@attrs.frozen(kw_only=True)
class Entry:
    """A finished process, or one round of a process that is being measured.

    Attributes:
      key: the trial's key.
      replicate: index of the process within its trial, from 0.
      wall_s: time that counts towards the trial's budget.
      facts: the trial's facts at the time of measurement.
      process: the process record. A line for a round holds only the blocks of that round; later
        lines of the process omit the warm-up.
      partial: whether the process had not ended.
    """

    key: ResultKey
    replicate: int
    wall_s: float
    facts: TrialFacts
    process: ProcessRecord
    partial: bool = False


@attrs.define(kw_only=True)
class Interrupted:
    """Processes left by an earlier run, which another run can continue.

    Attributes:
      entries: entries of trials that the results file does not hold, unless `undecided`.
      torn: whether the last line was truncated.
      undecided: True if the races ended undecided, False if the run was interrupted.
    """

    path: Path
    settings: Settings
    entries: list[Entry]
    torn: bool
    undecided: bool = False

    def forget(self, keys: Collection[ResultKey]) -> None:
        """Removes the entries of trials, and the journal itself if none are left."""
        if any(entry.key in keys for entry in self.entries):
            self.entries = [entry for entry in self.entries if entry.key not in keys]
            if self.entries:
                _replace(self.path, self.settings, self.entries)
            else:
                _remove(self.path)


class Journal:
    """The journal that a run writes; use as a context manager."""

    def __init__(self, results: Path, settings: Settings, say: Callable[[str], None]) -> None:
        """Creates the journal.

        Args:
          results: the results file.
          settings: the run's settings.
          say: called with a message about the entries that remain if the run ends early.

        Raises:
          ResultsFileError: the journal cannot be written.
        """
        self.path = folder_of(results) / f"{settings.run_id}.jsonl"
        self.pending = 0
        self._rounds: Counter[tuple[ResultKey, int]] = Counter()
        # Keep the lines of the file in case it is removed.
        self._lines: list[bytes] = []
        self._size = self._empty_size = 0
        self._say = say
        self._settings = settings
        self._undecided: list[Entry] = []
        with self._writing():
            self._create()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        message = None
        if self.pending or self._rounds:
            message = f"saved {self._contents} in {self.path}; --resume completes their trials"
        else:
            _remove(self.path)
            if kind is not None:
                message = "nothing saved from the current race: no round was complete"
        os.close(self._descriptor)
        if message:
            self._say(message)

    @property
    def _contents(self) -> str:
        rounds, left = max(self._rounds.values(), default=0), len(self._rounds)
        finished = f"{self.pending} finished process{'es' * (self.pending != 1)}"
        unfinished = f"{left} unfinished process{'es' * (left != 1)}"
        partial = f"{rounds} round{'s' * (rounds != 1)} from {unfinished}"
        return " and ".join([finished] * bool(self.pending) + [partial] * bool(rounds))

    def append(self, entry: Entry) -> None:
        """Appends a finished process; the entry is on disk on return.

        Raises:
          ResultsFileError: the entry cannot be written; earlier lines are unchanged.
        """
        with self._writing():
            self._write(_line(entry))
            self.pending += 1
            self._rounds.pop((entry.key, entry.replicate), None)

    def append_round(self, entries: Sequence[Entry]) -> None:
        """Appends a round of processes that are being measured; see `append`."""
        with self._writing():
            self._write(b"".join(map(_line, entries)))
            self._rounds.update((entry.key, entry.replicate) for entry in entries)

    def clear(self) -> None:
        """Removes all entries, because the results file now holds their trials."""
        with self._writing():
            self._lines, self.pending = [], 0
            self._rounds.clear()
            if self._is_gone():
                os.close(self._descriptor)
                self._create()
            os.ftruncate(self._descriptor, self._empty_size)
            self._size = self._empty_size

    def _create(self) -> None:
        """Creates the file with the lines it should hold."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = _create_locked(self.path)
        self._size = 0
        self._append(_line(self._settings))
        self._empty_size = self._size
        self._append(b"".join(self._lines))

    def _is_gone(self) -> bool:
        """Returns whether the open file is no longer at its path."""
        try:
            there = self.path.lstat()
        except OSError:
            return True
        return not os.path.samestat(there, os.fstat(self._descriptor))

    def set_aside(self, entries: Iterable[Entry]) -> None:
        """Keeps the processes of a race that ended undecided, so that `--resume` can add more."""
        self._undecided += entries
        with self._writing():
            path = self.path.with_name(f"{self._settings.run_id}{_UNDECIDED}")
            _replace(path, self._settings, self._undecided)

    def _write(self, line: bytes) -> None:
        if self._is_gone():
            os.close(self._descriptor)
            self.path.unlink(missing_ok=True)  # discard a foreign file at our path
            self._create()
            self._say(f"{self.path} was moved or removed; writing a new journal")
        self._append(line)
        self._lines.append(line)

    def _append(self, line: bytes) -> None:
        try:
            rest = line
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            os.fsync(self._descriptor)
        except BaseException:
            # The next entry must start on a new line.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(line)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or error
            raise ResultsFileError(f"{self.path} cannot be written: {reason}") from error


def folder_of(results: Path) -> Path:
    """Returns the folder with the journals of a results file."""
    # Of names that do not end in .json, only the whole one is unique.
    stem = results.stem if results.suffix == ".json" else results.name
    return results.with_name(f"{stem}.journal")


def interrupted_runs(
    results: Path, stored: Collection[tuple[str, ResultKey]]
) -> tuple[list[Interrupted], list[str]]:
    """Returns what earlier runs left, oldest first, and a list of unreadable files and lines.

    Args:
      results: the results file.
      stored: run and key of each stored result. A program may have stopped after writing results
        and before emptying the journal.
    """
    runs: list[Interrupted] = []
    complaints: list[str] = []
    unreadable = set()
    for path in sorted(folder_of(results).glob("*.jsonl")):
        if not path.is_file() or _has_nothing_for_others(path):
            continue
        try:
            run, bad = _read(path)
        except (OSError, msgspec.DecodeError) as error:
            complaints.append(f"{path} is not a journal that this version can read: {error}")
            continue
        complaints += [f"{path}: ignored unreadable line {number}" for number in bad]
        unreadable.update([path] * bool(bad))
        runs.append(run)
    keys: defaultdict[str, set[ResultKey]] = defaultdict(set)
    for run_id, key in stored:
        keys[run_id].add(key)
    for run in runs:
        for run_id in run.settings.joined:
            keys[run_id] |= keys[run.settings.run_id]
    for run in runs:
        if not run.undecided:
            run.forget(keys[run.settings.run_id])
    for run in runs:
        if not run.entries and run.path not in unreadable:
            _remove(run.path)
    return [run for run in runs if run.entries], complaints


@attrs.frozen(kw_only=True)
class Joined:
    """Processes that a race resumes from.

    Attributes:
      entries: the processes of each trial, in order.
      first_round: number of the next round to measure.
      others: number of processes of these trials that ran another program, were measured on other
        inputs, or were verified against another truth.
    """

    entries: dict[ResultKey, list[Entry]] = attrs.field(factory=dict)
    first_round: int = 0
    others: int = 0


def joined(
    runs: Sequence[Interrupted], facts: Mapping[ResultKey, TrialFacts], workload: str
) -> Joined:
    """Joins processes that were measured under the same settings.

    Rounds are renumbered so that blocks share a number only if they were interleaved: blocks
    separated by an interruption are never paired.

    Args:
      runs: interrupted runs, oldest first.
      facts: the current facts of each trial.
      workload: digest of their workload; older journals do not record it.
    """
    entries: dict[ResultKey, list[Entry]] = {}
    first_round = others = 0
    # Use at most one unfinished process per trial, because it lacks the final verification.
    partial = {entry.key: entry for run in runs for entry in run.entries if entry.partial}
    for run in runs:
        usable = [entry for entry in run.entries if entry.key in facts]
        usable = [entry for entry in usable if not entry.partial or partial[entry.key] is entry]
        fitting = [
            entry
            for entry in usable
            if facts[entry.key] == entry.facts and entry.process.workload in (None, workload)
        ]
        others += len(usable) - len(fitting)
        for replicate in sorted({entry.replicate for entry in fitting}):
            rounds = [first_round]
            for entry in fitting:
                if entry.replicate == replicate:
                    entries.setdefault(entry.key, []).append(_shifted(entry, first_round))
                    rounds += [1 + (b.round or 0) for b in entries[entry.key][-1].process.blocks]
            first_round = max(rounds)
    return Joined(entries=entries, first_round=first_round, others=others)


def _shifted(entry: Entry, rounds: int) -> Entry:
    blocks = [attrs.evolve(b, round=rounds + (b.round or 0)) for b in entry.process.blocks]
    return attrs.evolve(entry, process=attrs.evolve(entry.process, blocks=blocks))


def _read(path: Path) -> tuple[Interrupted, list[int]]:
    """Returns a journal and the numbers of unreadable lines, except the last."""
    content = path.read_bytes()
    head, *lines = content.split(b"\n")
    # The text after the last newline is empty or a truncated line.
    torn = lines.pop() != b"" if lines else True
    settings = msgspec.json.decode(head, type=Settings)
    entries: list[Entry] = []
    bad = []
    for number, line in enumerate(lines, 2):
        try:
            entries.append(msgspec.json.decode(line, type=Entry))
        except msgspec.DecodeError:
            bad.append(number)
    run = Interrupted(
        path=path,
        settings=settings,
        entries=_processes(entries, settings),
        torn=torn,
        undecided=path.name.endswith(_UNDECIDED),
    )
    return run, bad


def _processes(lines: Iterable[Entry], settings: Settings) -> list[Entry]:
    """Merges lines into processes; drops those with too few rounds."""
    latest: dict[tuple[ResultKey, int], Entry] = {}
    for line in lines:
        place = (line.key, line.replicate)
        before = latest.get(place)
        # After a finished process, a round belongs to its repetition.
        goes_on = line.partial and before is not None and before.partial
        latest[place] = _with_round(before, line) if before and goes_on else line
    fewest = settings.sampling.get("min_rounds", 1)
    # The only process of a trial must be finished, because it needs the final verification.
    usable = settings.sampling.get("min_processes", 1) > 1
    return [
        entry
        for entry in latest.values()
        if not entry.partial or (usable and len(entry.process.blocks) >= fewest)
    ]


def _with_round(entry: Entry, line: Entry) -> Entry:
    before, now = entry.process, line.process
    blocks = (*before.blocks, *before.void_blocks, *now.blocks, *now.void_blocks)
    sound, void = sound_and_void(sorted(blocks, key=lambda block: block.round or 0))
    warmup = before.warmup_latencies_ms
    process = attrs.evolve(now, blocks=sound, void_blocks=void, warmup_latencies_ms=warmup)
    return attrs.evolve(line, process=process)


def _replace(path: Path, settings: Settings, entries: Iterable[Entry]) -> None:
    """Replaces a journal atomically."""
    partial = path.with_suffix(".partial")
    partial.write_bytes(b"".join([_line(settings), *map(_line, entries)]))
    partial.replace(path)


def _line(value: Settings | Entry) -> bytes:
    # NaN is encoded as null, which makes the line unreadable but does not end the race.
    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:
        return msgspec.json.encode(encodable_json(msgspec.to_builtins(value))) + b"\n"


def _create_locked(path: Path) -> int:
    """Creates a file and returns its descriptor, which holds a lock while open."""
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        # Some network file systems do not support locks.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        # Another run mistook the file for one that ended before its first line.
        os.close(descriptor)


def _has_nothing_for_others(path: Path) -> bool:
    """Returns whether a journal's run is active, or ended before its first line was complete.

    Journals of the second kind are removed while locked.
    """
    with contextlib.suppress(OSError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        if not file.readline().endswith(b"\n"):
            _remove(path)
            return True
    return False


def _remove(path: Path) -> None:
    """Removes a journal, and its folder if empty; a read-only folder keeps both."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        path.parent.rmdir()


def _versions(packages: Iterable[Any]) -> dict[str, str]:
    return {package.name: package.version for package in packages}


def _facts(settings: Settings, environments: Iterable[str]) -> dict[str, Any]:
    around, host = settings.execution_environment, settings.execution_environment.host
    facts = {
        "device": settings.device,
        "outputs": settings.outputs,
        "suite revision": around.git_revision,
        "threads": host.threads,
        "pinned CPUs": host.pinned_cpus,
        "usable CPUs": host.usable_cpus,
        "CPU": host.cpu_model,
        "Python": host.python,
    }
    versions = {
        f"Python in {name}": around.environments[name].python_version for name in environments
    }
    return facts | versions


def _differences(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Returns descriptions of the first few differences between two mappings."""
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    found = [
        f"{prefix}{name} {_shown(old.get(name))}, now {_shown(new.get(name))}"
        for name in names[:_MOST_NAMED]
    ]
    rest = len(names) - len(found)
    return [*found, f"{prefix}{rest} other difference{'s' * (rest > 1)}"] if rest > 0 else found


def _shown(value: Any) -> Any:
    return "absent" if value is None else value
