"""Settings, subjects and outcomes of exports."""

import enum
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import attrs

from comparative_benchmark.backends.api import BackendInfo
from comparative_benchmark.engine.session import InProcessSession, Session, SessionEnded
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.results.record import Status
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts
from openxla.benchmark.def_types import BenchmarkCase, Workload


class Running:
    """The processes used by exports in several threads, so that all can be ended at once."""

    def __init__(self) -> None:
        self._sessions: set[Session | InProcessSession] = set()
        self._ended = False

    @contextmanager
    def holding(self, session: Session | InProcessSession) -> Iterator[None]:
        """Registers a process while it is in use.

        Raises:
          SessionEnded: all processes were ended, and no further one may start.
        """
        self._sessions.add(session)
        try:
            if self._ended:
                raise SessionEnded(Status.FAILED, "export", "interrupted")
            yield
        finally:
            self._sessions.discard(session)

    def end_all(self) -> None:
        """Ends all processes; threads that wait for them receive an error."""
        self._ended = True
        for session in list(self._sessions):
            if isinstance(session, Session):
                session.interrupt()


@attrs.frozen(kw_only=True)
class ExportSettings:
    """Settings for all exports of a run.

    Attributes:
      run: threads, limits of each process, and where their logs go.
      date: returns the date for a manifest; each file has its own unless one is given.
      running: the running processes.
    """

    run: RunSettings
    date: Callable[[], str]
    running: Running = attrs.field(factory=Running)


class Ending(enum.Enum):
    """How an export ended; after `not_run`, the file exists but cannot be run on this machine."""

    OK = "ok"
    NOT_RUN = "not_run"
    WRONG_OUTPUT = "wrong_output"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"

    @property
    def leaves_files(self) -> bool:
        """Whether the artifact exists."""
        return self in (Ending.OK, Ending.NOT_RUN)


@attrs.frozen(kw_only=True)
class Subject:
    """A model, and the data to verify its exports.

    Attributes:
      case: case of the model, with its default input.
      workload: workload of the case.
      artifacts: its inputs, truth and reference.
      reference: the backend that computes truth and reference.
    """

    case: BenchmarkCase
    workload: Workload
    artifacts: WorkloadArtifacts
    reference: BackendInfo

    @property
    def name(self) -> str:
        """The model's name."""
        return self.case.model.name


@attrs.frozen(kw_only=True)
class MadeFile:
    """A file of an artifact that was read back, and verified if it could be run."""

    path: str
    sha256: str
    size_bytes: int


@attrs.frozen(kw_only=True)
class Outcome:
    """The outcome of an export.

    Attributes:
      model, kind: names of both.
      ending: how it ended.
      files: paths in the model's directory; empty unless `ending.leaves_files`.
      reason: why it is not ok, with the process and phase in which it ended.
      versions: versions of the packages that produced it.
      date: date of the export.
      relative_error: error of the outputs that were read back, against the float64 truth.
      wall_s: duration in seconds.
      log_file: output of the processes.
      traceback: traceback from the process, if any.
    """

    model: str
    kind: str
    ending: Ending
    files: tuple[MadeFile, ...] = ()
    reason: str | None = None
    versions: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    date: str
    relative_error: float | None = None
    wall_s: float = 0.0
    log_file: str | None = None
    traceback: str | None = None

    @property
    def size_bytes(self) -> int:
        """Total size of the files."""
        return sum(file.size_bytes for file in self.files)


def refused(subject_name: str, kind: str, reason: str, date: str) -> Outcome:
    """Returns the outcome of an export that was not tried."""
    return Outcome(
        model=subject_name, kind=kind, ending=Ending.UNSUPPORTED, reason=reason, date=date
    )
