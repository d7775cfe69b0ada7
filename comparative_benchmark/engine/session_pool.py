"""Workers shared by several models, as long as no model fails.

Starting a worker and importing a framework takes seconds, longer than running a tiny model. Models
that need the same framework therefore share a process, which releases each model before the next
(`release`) and is discarded after a failed command. To make up for the lost isolation, the caller
may run a failed model again in a fresh worker if its worker had served others.
"""

import itertools
import operator
import re
import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

import attrs

from comparative_benchmark.analysis.machine.other_processes import default_limit_bytes
from comparative_benchmark.backends.api import BackendInfo
from comparative_benchmark.engine.messages import ProcessTrack, Released, Report
from comparative_benchmark.engine.session import Hidden, InProcessSession, Session, SessionEnded
from comparative_benchmark.engine.settings import Environment, ProcessPlan, RunSettings
from comparative_benchmark.engine.trial import Competitor
from comparative_benchmark.results.record import Status
from openxla.benchmark.files import temporary_folder

A = TypeVar("A", bound=Report)
# A worker that has grown by more than this since its first model is replaced.
_MAX_GROWTH_BYTES = 2**30
# Allowance for the growth of a worker while it is measured.
MEMORY_MARGIN = 1.3


class SharedSession(Session):
    """A session that stays alive after its `with` block; `end` ends it."""

    def __init__(self, **arguments: Any) -> None:
        self.usable = True
        self.busy = False
        self.served = 0
        self.idle_since: float | None = None
        self._first_bytes: int | None = None
        super().__init__(**arguments)

    def call(self, kind: type[A], **arguments: Any) -> A:
        """See `Session.call`; after any failure except `unsupported`, the worker is not reused."""
        try:
            return super().call(kind, **arguments)
        except SessionEnded as ended:
            self.usable &= ended.status is Status.UNSUPPORTED
            raise

    def renew(self) -> None:
        """See `Session.renew`; resumes a worker that was stopped after its last model."""
        self.idle_since = None
        self.resume()
        super().renew()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Releases the model, or ends the worker if it is no longer reliable."""
        self.served += 1
        self.busy = False
        self.resume()
        if kind is not None:
            self.usable = False
        if self.usable:
            try:
                super().call(Released)
            except SessionEnded:
                self.usable = False
        if not self.usable:
            self.kill()
            return
        now = self.resident_bytes()
        self._first_bytes = self._first_bytes if self._first_bytes is not None else now
        if now > self._first_bytes + _MAX_GROWTH_BYTES:
            self.end()
            return
        # Runtime threads spin for a while after their work, and would take CPUs from the worker
        # that is measured next.
        self.pause()
        self.idle_since = time.monotonic()

    def end(self) -> None:
        """Ends the worker; kills it without a request if it is no longer reliable."""
        if self.usable:
            self.usable = False
            super().__exit__(None, None, None)
        else:
            self.kill()


@attrs.define(kw_only=True)
class SessionPool:
    """Holds at most one worker, with its own folder and log; use as a context manager.

    Attributes:
      folder: parent of the workers' folders, which are removed with their workers.
      log_dir: folder for logs.
      label: distinguishes its logs from other pools' logs.
      cache_dir: folder for compile caches; None for one in each worker's folder.
      hidden: folders to hide from its workers.
      stopped: whether `stop` was called; no more workers are started then.
    """

    folder: Path
    log_dir: Path
    label: str = ""
    cache_dir: Path | None = None
    hidden: Hidden | None = None
    stopped: bool = attrs.field(default=False, init=False)
    _session: SharedSession | InProcessSession | None = attrs.field(default=None, init=False)
    _name: str = attrs.field(default="", init=False)
    _serial: int = attrs.field(default=0, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.empty()

    def get(
        self,
        name: str,
        settings: RunSettings,
        backend: BackendInfo,
        environment: Environment | None = None,
        *,
        track: ProcessTrack | None = None,
    ) -> SharedSession | InProcessSession:
        """Returns the current worker if it has that name and is usable, else a fresh one.

        The worker writes its other files to its own folder.

        Args:
          name: what the worker serves, always with the same settings, backend and environment.
          settings: settings of the run.
          backend: see `RunSettings.open_session`.
          environment: see `RunSettings.open_session`.
          track: see `RunSettings.open_session`.

        Raises:
          SessionEnded: the pool was stopped, or the worker did not start.
        """
        self._check()
        session = self._usable(name)
        if session is None:
            self.empty()
            log_file = self.log_file(name)
            self._name, self._serial = name, self._serial + 1
            directory = self._directory()
            directory.mkdir(parents=True)
            cache_dir = self.cache_dir or directory / "cache"
            cache_dir.mkdir(parents=True, exist_ok=True)
            session = self._session = settings.open_session(
                backend,
                environment,
                work_dir=directory,
                cache_dir=cache_dir,
                log_file=log_file,
                track=track,
                hidden=self.hidden,
                kind=SharedSession,
            )
            if isinstance(session, SharedSession):
                session.folders = {str(cache_dir): "{cache_dir}", str(directory): "{work_dir}"}
            self._check()
        elif track is not None and isinstance(session, SharedSession):
            session.follow(track)
        session.renew()
        return session

    def has_served(self, name: str) -> bool:
        """Returns whether the next worker of that name has already served a model."""
        session = self._usable(name)
        return session is not None and session.served > 0

    @property
    def busy(self) -> bool:
        """Whether the worker is serving a model."""
        return self.worker is not None and self.worker.busy

    @property
    def worker(self) -> SharedSession | None:
        """The current worker, if it is a process."""
        return self._session if isinstance(self._session, SharedSession) else None

    @property
    def served(self) -> int:
        """Number of models that the last worker has served, even if it is no longer usable."""
        return self._session.served if self._session else 0

    def log_file(self, name: str) -> Path:
        """Returns the log file of the worker that `get` will return."""
        serial = self._serial + (self._usable(name) is None)
        return self.log_dir / ".".join(filter(None, (name, self.label, str(serial), "log")))

    def stop(self) -> None:
        """Kills the worker from another thread; the waiting thread gets the error."""
        self.stopped = True
        if isinstance(session := self._session, SharedSession):
            session.interrupt()

    def empty(self) -> None:
        """Ends the worker, if any, and removes its folder."""
        if self._session is not None:
            self._session.end()
            self._session = None
            shutil.rmtree(self._directory(), ignore_errors=True)

    def _usable(self, name: str) -> SharedSession | InProcessSession | None:
        there = self._session is not None and self._session.usable and self._name == name
        return self._session if there else None

    def _check(self) -> None:
        if self.stopped:
            raise SessionEnded(Status.FAILED, "start", "the run was interrupted")

    def _directory(self) -> Path:
        return self.folder / f"worker-{self._serial}"


# Statuses that cannot be caused by another workload.
_ITS_OWN = frozenset({Status.OK, Status.UNSUPPORTED, Status.UNSTEADY})


@attrs.define
class SharedWorkers:
    """Workers shared by workloads; use as a context manager, with `open` to open sessions.

    Attributes:
      log_dir: folder for logs.
      raced: keep the idle workers of all competitors. Without a race, only the workers of one
        competitor are alive at a time, which needs less memory.
    """

    log_dir: Path
    raced: bool = True
    _pools: dict[tuple[str, int], list[SessionPool]] = attrs.field(factory=dict, init=False)
    _folder: Path = attrs.field(init=False)
    _stack: ExitStack = attrs.field(factory=ExitStack, init=False)

    def __enter__(self) -> Self:
        self._folder = Path(self._stack.enter_context(temporary_folder("workers")))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        pools = list(itertools.chain.from_iterable(self._pools.values()))
        for pool in pools if kind is not None else ():
            pool.stop()
        for pool in pools:
            pool.empty()
        self._stack.close()

    def open(
        self, settings: RunSettings, competitor: Competitor, plan: ProcessPlan
    ) -> SharedSession | InProcessSession:
        """Returns a free worker of a competitor, framework and replicate; starts one if needed.

        Caches are shared per competitor and framework, except by plans that compile again.

        Raises:
          SessionEnded: the worker did not start.
        """
        name = _name(competitor, plan.framework)
        if not self.raced:
            self._end_others(name)
        pools = self._pools.setdefault((name, plan.replicate), [])
        pool = next((pool for pool in pools if not pool.busy), None)
        if pool is None:
            pool = SessionPool(
                folder=self._folder / f"{name}.{plan.replicate}.{len(pools)}",
                log_dir=self.log_dir,
                label=f"process-{plan.replicate}" + f".{len(pools)}" * bool(pools),
                # Replicates reuse the first one's programs; without a race, all compile cold.
                cache_dir=self._folder / f"{name}.{len(pools)}.{plan.cache_dir.name}"
                if self.raced
                else None,
                hidden=Hidden.of(),
            )
            pools.append(pool)
        session = pool.get(
            name, settings, competitor.backend, competitor.environment, track=plan.track
        )
        if isinstance(session, SharedSession):
            session.busy = True
        self._keep_room()
        return session

    def _keep_room(self) -> None:
        """Ends idle workers, the longest idle first, until one more of the largest size fits."""
        alive = [(p, p.worker) for pools in self._pools.values() for p in pools if p.worker]
        largest = max((worker.resident_bytes() for _, worker in alive), default=0)
        idle = [(worker.idle_since, pool) for pool, worker in alive if worker.idle_since]
        for _, pool in sorted(idle, key=operator.itemgetter(0)):
            if default_limit_bytes() > MEMORY_MARGIN * largest:
                return
            pool.empty()

    def _end_others(self, name: str) -> None:
        for (other, _), pools in self._pools.items():
            if other != name:
                for pool in pools:
                    pool.empty()

    def may_have_failed(self, competitor: Competitor, framework: str, status: Status) -> bool:
        """Returns whether earlier models of its worker may have caused a trial's status."""
        name = _name(competitor, framework)
        served = (
            pool.served for key, pools in self._pools.items() if key[0] == name for pool in pools
        )
        return status not in _ITS_OWN and max(served, default=0) > 1


def _name(competitor: Competitor, framework: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", f"{framework}-{competitor}")
