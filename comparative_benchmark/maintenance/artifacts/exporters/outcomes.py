"""What came of an export, and of which model."""

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
    """The processes that exports in several threads wait for, so that they can be ended at once."""

    def __init__(self) -> None:
        self._sessions: set[Session | InProcessSession] = set()
        self._ended = False

    @contextmanager
    def holding(self, session: Session | InProcessSession) -> Iterator[None]:
        """Knows a process as long as it is waited for.

        Raises:
          SessionEnded: all were ended; no further one may begin.
        """
        self._sessions.add(session)
        try:
            if self._ended:
                raise SessionEnded(Status.FAILED, "export", "interrupted")
            yield
        finally:
            self._sessions.discard(session)

    def end_all(self) -> None:
        """Ends them; those who wait for them are told so."""
        self._ended = True
        for session in list(self._sessions):
            if isinstance(session, Session):
                session.interrupt()


@attrs.frozen(kw_only=True)
class ExportSettings:
    """What holds for all exports of a run.

    Attributes:
      run: threads, limits of each process, and where their logs go.
      date: that the manifests tell; a function, for each file has its own unless one is given.
      running: the processes that are under way.
    """

    run: RunSettings
    date: Callable[[], str]
    running: Running = attrs.field(factory=Running)


class Ending(enum.Enum):
    """How an export ended; after `not_run` there is a file that nothing here can run."""

    OK = "ok"
    NOT_RUN = "not_run"
    WRONG_OUTPUT = "wrong_output"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"

    @property
    def leaves_files(self) -> bool:
        """Whether the artifact is there."""
        return self in (Ending.OK, Ending.NOT_RUN)


@attrs.frozen(kw_only=True)
class Subject:
    """A model, and what its exports are judged by.

    Attributes:
      case: of the model, with its default input.
      workload: of the case.
      artifacts: its inputs, truth and reference.
      reference: the backend that computes the last two.
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
    """A file of an artifact that was read back, and found right if it could be run."""

    path: str
    sha256: str
    size_bytes: int


@attrs.frozen(kw_only=True)
class Outcome:
    """What came of an export.

    Attributes:
      model, kind: names.
      ending: how it ended.
      files: paths in the model's directory; none unless `ending.leaves_files`.
      reason: why it is not ok, with the process and phase where it ended.
      versions: of the packages that made it.
      date: when.
      relative_error: of the outputs of what was read back, against the float64 truth.
      wall_s: that it took.
      log_file: what the processes printed.
      traceback: of the process, where there was one.
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
        """Size of all files together."""
        return sum(file.size_bytes for file in self.files)


def refused(subject_name: str, kind: str, reason: str, date: str) -> Outcome:
    """Returns the outcome of what is not even tried."""
    return Outcome(
        model=subject_name, kind=kind, ending=Ending.UNSUPPORTED, reason=reason, date=date
    )
