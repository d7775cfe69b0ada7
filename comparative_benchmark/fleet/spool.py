"""The spool: claims, batches, ends and results of a fleet, in a folder that all submitters share.

    plan.json                         the jobs
    claims/<key>.<attempt>/owner.json who submits this attempt of a job
    batches/<name>.json               what one allocation executes
    submitted/<owner>.jsonl           batches and their jobs, appended by one submitter
    work/<key>/                       unfinished results file and log of a job
    results/<key>.<attempt>.json      finished results
    ends/<key>.<attempt>.json         how an attempt ended, and where

`mkdir` is atomic on NFS, so two submitters never start the same attempt. All times are those of
the file system, because clocks of machines differ. The functions here are linear in the number of
jobs, and read a file only if it is new.
"""

import contextlib
import os
import re
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import msgspec

from comparative_benchmark.errors import UsageError
from openxla.benchmark.files import new_file, write_atomically

# A claim without a submitted batch after this time belongs to a submitter that was killed.
CLAIM_EXPIRES_S = 600.0
_FINISHED = re.compile(r"([0-9a-f]{32})\.(\d{1,4})\.json")
_CLAIMED = re.compile(r"([0-9a-f]{32})\.(\d{1,4})")

Ending = Literal["done", "failed", "timeout", "lost", "cancelled", "damaged", "refused"]


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
      node: where it ran; None if it never started, or nobody knows.
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
            os.write(descriptor, b"0")
            return os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)
            Path(name).unlink()

    def view(self) -> View:
        """Returns what the spool holds now."""
        view = View()
        for name in self._names("claims"):
            if match := _CLAIMED.fullmatch(name):
                key, number = match[1], int(match[2])
                view.claimed[key] = max(number, view.claimed.get(key, -1))
        for record in self._submissions():
            view.submitted_at[record.batch] = record.at
            for attempt in record.attempts:
                view.batches[attempt] = record.batch
        for folder, attempts in (("results", view.finished), ("ends", view.ended)):
            for name in self._names(folder):
                if _FINISHED.fullmatch(name):
                    attempts.add(name.removesuffix(".json"))
                elif not name.startswith("."):
                    view.foreign.append(f"{folder}/{name}")
        return view

    def claim(self, attempt: Attempt) -> bool:
        """Claims an attempt of a job; returns False if another submitter has it."""
        folder = self.folder / "claims" / attempt.name
        try:
            folder.mkdir()
        except FileExistsError:
            return False
        write_atomically(folder / "owner.json", msgspec.json.encode({"owner": self.owner}))
        return True

    def release(self, attempts: Iterable[Attempt]) -> None:
        """Gives up claims whose batch was not submitted."""
        for attempt in attempts:
            # A rename is atomic: of two processes, one removes the claim.
            folder = self.folder / "claims" / attempt.name
            gone = folder.with_name(f".released.{uuid.uuid4().hex}")
            with contextlib.suppress(FileNotFoundError):
                folder.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)

    def claim_age_s(self, attempt: Attempt, now: float) -> float:
        """Returns the age of a claim; infinite if it is gone."""
        try:
            return now - (self.folder / "claims" / attempt.name).stat().st_mtime
        except OSError:
            return float("inf")

    def write_batch(self, batch: Batch) -> Path:
        """Writes a batch and returns its file."""
        path = self.batch_file(batch.name)
        write_atomically(path, msgspec.json.encode(batch))
        return path

    def batch_file(self, name: str) -> Path:
        """Returns the file of a batch."""
        return self.folder / "batches" / f"{name}.json"

    def record_submission(self, batch: str, engine_id: str, attempts: Sequence[Attempt]) -> None:
        """Appends a submission to this submitter's list."""
        record = Submitted(
            batch=batch,
            id=engine_id,
            at=self.now(),
            attempts=tuple(attempt.name for attempt in attempts),
        )
        path = self.folder / "submitted" / f"{self.owner}.jsonl"
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
        except (OSError, msgspec.DecodeError):
            return None

    def result_file(self, attempt: str) -> Path:
        """Returns the file of an attempt's finished results."""
        return self.folder / "results" / f"{attempt}.json"

    def work_folder(self, key: str) -> Path:
        """Returns the folder of a job's unfinished results."""
        return self.folder / "work" / key

    def set_aside(self, attempt: str) -> None:
        """Renames a result that is not valid, so that the attempt does not count as finished."""
        path = self.result_file(attempt)
        with contextlib.suppress(FileNotFoundError):
            path.rename(path.with_suffix(".json.damaged"))

    def durations_s(self) -> dict[str, float]:
        """Returns the durations of earlier jobs; see `planning.duration_key`."""
        try:
            content = (self.folder / "durations.json").read_bytes()
            return msgspec.json.decode(content, type=dict[str, float])
        except (OSError, msgspec.DecodeError):
            return {}

    def save_durations_s(self, durations_s: Mapping[str, float]) -> None:
        """Stores durations for later plans."""
        write_atomically(
            self.folder / "durations.json", msgspec.json.encode(dict(sorted(durations_s.items())))
        )

    def _names(self, folder: str) -> list[str]:
        try:
            with os.scandir(self.folder / folder) as entries:
                return [entry.name for entry in entries]
        except OSError:
            return []

    def _submissions(self) -> list[Submitted]:
        records: list[Submitted] = []
        decoder = msgspec.json.Decoder(Submitted)
        for name in self._names("submitted"):
            if not name.endswith(".jsonl"):
                continue
            with contextlib.suppress(OSError):
                for line in (self.folder / "submitted" / name).read_bytes().splitlines():
                    # The last line of a killed submitter may be cut short.
                    with contextlib.suppress(msgspec.DecodeError):
                        records.append(decoder.decode(line))
        return records


def read_batch(path: Path) -> Batch:
    """Reads the file of a batch.

    Raises:
      UsageError: the file is missing or damaged.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Batch)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def plain(value: Any) -> Any:
    """Converts a record to dictionaries and lists."""
    return msgspec.to_builtins(value)
