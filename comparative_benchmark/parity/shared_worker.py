"""One worker for many cells, as long as none of them fails in it.

Starting a worker and importing a framework takes seconds; a tiny model takes less. So the cells of
a framework and competitor share a process: between two of them it lets go of the model
(`release`), and the first cell that fails is its last. What isolation is lost by sharing is won
back by the caller: a cell that fails in a worker that has served others is run again in a fresh
one, and that run counts.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs

from comparative_benchmark.backends.api import BackendInfo
from comparative_benchmark.results.record import Status
from comparative_benchmark.runs.environments import Environment
from comparative_benchmark.runs.session import Session, SessionEnded
from comparative_benchmark.runs.settings import RunSettings
from comparative_benchmark.runs.trace import ProcessTrack
from comparative_benchmark.worker.protocol import Message

# A worker that has grown by so much since its first cell gives way to a fresh one.
_MAX_GROWTH_BYTES = 2**30


class SharedSession(Session):
    """A session that leaving its `with` block does not end; `end` does."""

    def __init__(self, **arguments: Any) -> None:
        self.usable = True
        self.cells = 0
        self._first_bytes: int | None = None
        super().__init__(**arguments)

    def call(self, command: str, **arguments: Any) -> Message:
        """See `Session.call`; after any failure but `unsupported` the worker is not used again."""
        try:
            return super().call(command, **arguments)
        except SessionEnded as ended:
            self.usable &= ended.status is Status.UNSUPPORTED
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ends a cell: the worker lets go of its model, or ends if it is not to be trusted."""
        self.cells += 1
        if kind is not None:
            self.usable = False
        if self.usable:
            try:
                super().call("release")
            except SessionEnded:
                self.usable = False
        if not self.usable:
            self.kill()
            return
        now = self.resident_bytes()
        self._first_bytes = self._first_bytes if self._first_bytes is not None else now
        if now > self._first_bytes + _MAX_GROWTH_BYTES:
            self.end()

    def end(self) -> None:
        """Ends the worker."""
        self.usable = False
        super().__exit__(None, None, None)


@attrs.define(kw_only=True)
class WorkerSlot:
    """The one worker that is alive, with folder and log of its own.

    Attributes:
      folder: where folders of workers are made; each goes when its worker does.
      log_dir: where logs go.
      lane: what tells its logs from those of other slots.
      name: of whom it serves, for the log; given before a session is asked for.
      stopped: whether `stop` was called; no further worker is started then.
    """

    folder: Path
    log_dir: Path
    lane: str = "lane"
    name: str = "worker"
    session: SharedSession | None = None
    stopped: bool = False
    _serial: int = 0

    @property
    def served(self) -> int:
        """How many cells the worker that is there has served; 0 if the next one will be fresh."""
        usable = self.session is not None and self.session.usable
        return self.session.cells if usable and self.session is not None else 0

    @property
    def log_file(self) -> Path:
        """The log of the worker that is there, or of the next one."""
        fresh = self.session is None or not self.session.usable
        return self.log_dir / f"{self.name}.{self.lane}.{self._serial + fresh}.log"

    def fill(self, open_session: Callable[[Path, Path], SharedSession]) -> SharedSession:
        """Returns the worker that is there, or one that the function starts in a fresh folder.

        Raises:
          SessionEnded: the slot was stopped, or the worker did not come up.
        """
        self._check()
        if self.session is None or not self.session.usable:
            self.empty()
            log_file = self.log_file
            self._serial += 1
            directory = self._directory()
            directory.mkdir(parents=True)
            self.session = open_session(directory, log_file)
            self._check()
        return self.session

    def stop(self) -> None:
        """Ends the worker from another thread; the one that waits for it is told so."""
        self.stopped = True
        if (session := self.session) is not None:
            session.interrupt()

    def empty(self) -> None:
        """Ends the worker, if there is one, and removes what it left."""
        if self.session is not None and self.session.usable:
            self.session.end()
        self.session = None
        shutil.rmtree(self._directory(), ignore_errors=True)

    def _check(self) -> None:
        if self.stopped:
            raise SessionEnded(Status.FAILED, "start", "it was interrupted")

    def _directory(self) -> Path:
        return self.folder / f"worker-{self._serial}"


@attrs.frozen(kw_only=True)
class SharingSettings(RunSettings):
    """Settings whose sessions are the one worker of `slot`, as long as it is usable."""

    slot: WorkerSlot

    def for_truth(self) -> Self:
        """Returns these settings: the worker that makes a truth serves the next cell, too."""
        return self

    def open_session(
        self,
        backend: BackendInfo,
        environment: Environment | None,
        *,
        work_dir: Path,
        cache_dir: Path,
        log_file: Path,
        track: ProcessTrack | None = None,
    ) -> Session:
        """Returns the worker that is there, or a fresh one; see `RunSettings.open_session`.

        What it writes beside its models goes to a folder of its own: that of a cell is gone before
        the worker is.
        """

        def start(directory: Path, log: Path) -> SharedSession:
            variables = self.environment(backend, directory, directory / "cache")
            return SharedSession(
                limits=self.limits, log_file=log, environment=variables, track=track
            )

        session = self.slot.fill(start)
        session.renew()
        return session
