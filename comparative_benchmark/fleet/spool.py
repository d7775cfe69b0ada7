"""The spool: claims, batches, ends and results of a fleet, in a folder that all submitters share.

    plan.json                         the jobs
    claims/<2>/<key>.<attempt>/       who submits this attempt of a job
    batches/<name>.json               what one allocation executes
    submitted/<owner>.jsonl           batches and their jobs, appended by one submitter
    work/<key>/                       unfinished results file, log and allocation of a job
    results/<key>.<attempt>.json      finished results
    ends/<key>.<attempt>.json         how an attempt ended, and where

`mkdir` is atomic on NFS, so two submitters never start the same attempt. Claims are spread over
folders by the first two digits of their keys, because many file systems allow fewer than 100,000
subfolders. All times are on the clock of the file system, because clocks of machines differ. The
functions here are linear in the number of jobs.
"""

import contextlib
import hashlib
import os
import re
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import attrs
import msgspec

from comparative_benchmark.errors import UsageError
from openxla.benchmark.files import new_file, write_atomically

# A claim without a submitted batch after this time belongs to a submitter that was killed.
CLAIM_EXPIRES_S = 600.0
_FINISHED = re.compile(r"([0-9a-f]{32})\.(\d{1,4})\.json")
_CLAIMED = re.compile(r"([0-9a-f]{32})\.(\d{1,4})")
# Raised by reading a file that may be missing or damaged.
UNREADABLE = (OSError, ValueError, RecursionError)
_DAMAGED = ".damaged"
_Durations = dict[str, Annotated[float, msgspec.Meta(gt=0, le=1e9)]]

Ending = Literal["done", "failed", "timeout", "lost", "cancelled", "damaged"]


@attrs.frozen
class Attempt:
    """One start of a job; attempts count from 0."""

    key: str
    number: int

    @property
    def name(self) -> str:
        """Name of the attempt's files, without extension."""
        return f"{self.key}.{self.number}"


@attrs.frozen(kw_only=True)
class Work:
    """A job as its node needs it."""

    key: str
    attempt: int
    label: str
    repeat: int
    arguments: tuple[str, ...]
    trials: int


@attrs.frozen(kw_only=True)
class Batch:
    """Jobs that one allocation executes one after another.

    Attributes:
      name: name of the batch in the scheduler's queue; never used twice.
      fleet, campaign, machine_class: where the jobs belong.
      engine: name of the engine.
      share, host: see `description.MachineClass`.
      time_limit_s: limit of the allocation.
      canaries: whether to measure canaries first.
    """

    name: str
    fleet: str
    campaign: str
    machine_class: str
    engine: str
    share: str
    host: str
    time_limit_s: int
    canaries: bool = True
    jobs: tuple[Work, ...]


@attrs.frozen(kw_only=True)
class Submitted:
    """A line of a submitter's list: a batch that the engine accepted.

    Attributes:
      id: the engine's name for the batch; engines use ids again, so it only helps people.
      at: time on the file system's clock, in seconds.
      attempts: names of the attempts in the batch.
    """

    batch: str
    id: str
    at: float
    attempts: tuple[str, ...]


@attrs.frozen(kw_only=True)
class End:
    """How an attempt ended.

    Attributes:
      node: where it ran; None if it never started, or if unknown.
      at: time on the file system's clock, in seconds.
      wall_s: duration, if the node reported it.
    """

    ending: Ending
    reason: str = ""
    node: str | None = None
    at: float = 0.0
    wall_s: float | None = None


@attrs.define(kw_only=True)
class View:
    """The content of a spool at one moment.

    Attributes:
      claimed: number of the latest claimed attempt of each job.
      batches: batch of each submitted attempt.
      submitted_at: time of each submission, by batch.
      finished: attempts with results.
      ended: attempts with an end.
      foreign: names of files that no job owns.
    """

    claimed: dict[str, int] = attrs.field(factory=dict)
    batches: dict[str, str] = attrs.field(factory=dict)
    submitted_at: dict[str, float] = attrs.field(factory=dict)
    finished: set[str] = attrs.field(factory=set)
    ended: set[str] = attrs.field(factory=set)
    foreign: list[str] = attrs.field(factory=list)


class Spool:
    """A fleet's folder in the spool."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan_file = folder / "plan.json"
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    @property
    def place(self) -> str:
        """Digest of the folder's path, which distinguishes spools, however the path is spelt."""
        return hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:6]

    def create(self) -> None:
        """Creates the folders.

        Raises:
          UsageError: a folder cannot be written.
        """
        try:
            for name in ("claims", "batches", "submitted", "work", "results", "ends", "logs"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise UsageError(f"the spool {self.folder} cannot be written: {error}") from error

    def now(self) -> float:
        """Returns the time of the file system, on which all times of the spool are."""
        descriptor, name = tempfile.mkstemp(prefix=".clock.", dir=self.folder)
        try:
            # Servers use their own clock for this. It works on a full disk, too.
            os.utime(descriptor)
            return os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)
            Path(name).unlink()

    def view(self) -> View:
        """Returns what the spool holds now.

        Raises:
          UsageError: a folder cannot be read. An empty view would start all jobs again.
        """
        view = View()
        for folder in self._names("claims"):
            for name in self._names(f"claims/{folder}"):
                if match := _CLAIMED.fullmatch(name):
                    key, number = match[1], int(match[2])
                    view.claimed[key] = max(number, view.claimed.get(key, -1))
        # One object for each name: a large spool has a million.
        names: dict[str, str] = {}
        for record in self.submissions():
            view.submitted_at[record.batch] = record.at
            for attempt in record.attempts:
                view.batches[names.setdefault(attempt, attempt)] = record.batch
        # A node writes the result first: an attempt that finishes now must not lack it.
        for folder, attempts in (("ends", view.ended), ("results", view.finished)):
            for name in self._names(folder):
                if _FINISHED.fullmatch(name):
                    attempt = name.removesuffix(".json")
                    attempts.add(names.setdefault(attempt, attempt))
                elif not name.startswith(".") and not name.endswith(_DAMAGED):
                    view.foreign.append(f"{folder}/{name}")
        return view

    def claim(self, attempt: Attempt) -> bool:
        """Claims an attempt of a job; returns False if another submitter has it."""
        folder = self._claim_folder(attempt)
        folder.parent.mkdir(parents=True, exist_ok=True)
        return self._take(folder, folder)

    def take_over(self, attempt: Attempt) -> bool:
        """Claims an attempt whose claim has expired; returns False if another submitter has it."""
        folder = self._claim_folder(attempt)
        try:
            claimed_ns = folder.stat().st_mtime_ns
        except FileNotFoundError:
            return self.claim(attempt)
        if not expired(self.now(), claimed_ns / 1e9):
            return False
        # If two submitters see the same expired claim, only one creates this folder. The claim is
        # then new, because a folder has the time of its latest entry.
        return self._take(folder / f"taken.{claimed_ns}", folder)

    def release(self, attempts: Iterable[Attempt]) -> None:
        """Gives up claims whose batch was not submitted."""
        for attempt in attempts:
            # A rename is atomic: of two processes, one removes the claim.
            folder = self._claim_folder(attempt)
            gone = folder.with_name(f".released.{uuid.uuid4().hex}")
            with contextlib.suppress(FileNotFoundError):
                folder.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)

    def claimed_at(self, attempt: Attempt) -> float:
        """Returns the time of a claim; minus infinity if it is gone."""
        try:
            return self._claim_folder(attempt).stat().st_mtime
        except OSError:
            return float("-inf")

    def write_batch(self, batch: Batch) -> Path:
        """Writes a batch and returns its file."""
        path = self.batch_file(batch.name)
        write_atomically(path, msgspec.json.encode(batch))
        return path

    def batch_file(self, name: str) -> Path:
        """Returns the file of a batch."""
        return self.folder / "batches" / f"{name}.json"

    def submissions(self) -> Iterator[Submitted]:
        """Yields the batches of all submitters.

        Raises:
          UsageError: a list cannot be read.
        """
        decoder = msgspec.json.Decoder(Submitted)
        for name in self._names("submitted"):
            if not name.endswith(".jsonl"):
                continue
            path = self.folder / "submitted" / name
            try:
                lines = path.read_bytes().splitlines()
            except OSError as error:
                raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
            for line in lines:
                # The last line of a killed submitter may be cut short.
                with contextlib.suppress(ValueError, RecursionError):
                    yield decoder.decode(line)

    def record_submission(self, batch: str, engine_id: str, attempts: Sequence[Attempt]) -> None:
        """Appends a submission to this submitter's list."""
        record = Submitted(
            batch=batch,
            id=engine_id,
            at=self.now(),
            attempts=tuple(attempt.name for attempt in attempts),
        )
        path = self.folder / "submitted" / f"{self.owner}.jsonl"
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def end(self, attempt: Attempt, end: End) -> bool:
        """Records the end of an attempt; returns False if it has one already."""
        path = self.folder / "ends" / f"{attempt.name}.json"
        try:
            with new_file(path, overwrite=False) as temporary:
                temporary.write_bytes(msgspec.json.encode(end))
        except FileExistsError:
            return False
        return True

    def read_end(self, attempt: str) -> End | None:
        """Returns the end of an attempt; None without a readable one."""
        try:
            content = (self.folder / "ends" / f"{attempt}.json").read_bytes()
            return msgspec.json.decode(content, type=End)
        except UNREADABLE:
            return None

    def result_file(self, attempt: str) -> Path:
        """Returns the file of an attempt's finished results."""
        return self.folder / "results" / f"{attempt}.json"

    def has_result(self, attempt: Attempt) -> bool:
        """Returns whether an attempt, or an earlier one of its job, has results."""
        names = (Attempt(attempt.key, number).name for number in range(attempt.number + 1))
        return any(self.result_file(name).exists() for name in names)

    def work_folder(self, key: str) -> Path:
        """Returns the folder of a job's unfinished results."""
        return self.folder / "work" / key

    def set_aside(self, attempt: str) -> None:
        """Renames a result that is not valid, so that the attempt does not count as finished."""
        path = self.result_file(attempt)
        # In a spool that others own, the file stays.
        with contextlib.suppress(OSError):
            path.rename(f"{path}{_DAMAGED}")

    def durations_s(self) -> dict[str, float]:
        """Returns the durations of earlier jobs; see `planning.duration_key`."""
        try:
            content = (self.folder / "durations.json").read_bytes()
            return msgspec.json.decode(content, type=_Durations)
        except UNREADABLE:
            return {}

    def save_durations_s(self, durations_s: Mapping[str, float]) -> None:
        """Stores durations for later plans."""
        write_atomically(
            self.folder / "durations.json", msgspec.json.encode(dict(sorted(durations_s.items())))
        )

    def _claim_folder(self, attempt: Attempt) -> Path:
        return self.folder / "claims" / attempt.key[:2] / attempt.name

    def _take(self, folder: Path, claim: Path) -> bool:
        try:
            folder.mkdir()
        except FileExistsError:
            return False
        (claim / "owner.json").write_bytes(msgspec.json.encode({"owner": self.owner}))
        return True

    def _names(self, folder: str) -> list[str]:
        try:
            with os.scandir(f"{self.folder}/{folder}") as entries:
                return [entry.name for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise UsageError(
                f"{self.folder / folder} cannot be read: {error.strerror or error}"
            ) from error


def expired(now: float, at: float, limit_s: float = CLAIM_EXPIRES_S) -> bool:
    """Returns whether a time is more than `limit_s` from now.

    A time in the future counts, too: the clock was set back, and would not catch up for long.
    """
    return abs(now - at) > limit_s


def read_batch(path: Path) -> Batch:
    """Reads the file of a batch.

    Raises:
      UsageError: the file is missing or damaged.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Batch)
    except UNREADABLE as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
