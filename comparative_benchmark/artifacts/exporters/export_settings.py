"""What holds for all exports of a run, and the processes that are under way."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from comparative_benchmark.results.record import Status
from comparative_benchmark.runs.in_process import InProcessSession
from comparative_benchmark.runs.session import Session, SessionEnded
from comparative_benchmark.runs.settings import RunSettings


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
