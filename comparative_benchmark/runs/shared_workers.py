"""Workers that serve all workloads of a run, one for each competitor and replicate.

Starting a worker and importing a framework takes seconds, an operator of a sweep a millisecond. So
the n-th process of a competitor is the same worker for all workloads: replicates are still
different processes, measured in turns, but a process has run other programs before. What fails in a
worker that had served others may have failed because of them, and is run again in one of its own.
"""

import re
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

from comparative_benchmark.results.record import Status
from comparative_benchmark.runs.hidden import Hidden
from comparative_benchmark.runs.in_process import InProcessSession
from comparative_benchmark.runs.participant import ProcessPlan
from comparative_benchmark.runs.session_pool import SessionPool, SharedSession
from comparative_benchmark.runs.settings import RunSettings
from comparative_benchmark.runs.trial import Competitor
from openxla.benchmark.temporary import temporary_folder

# What another workload cannot have brought about.
_ITS_OWN = frozenset({Status.OK, Status.UNSUPPORTED, Status.UNSTEADY})


@attrs.define
class SharedWorkers:
    """Use as a context manager; `open` is what participants open their sessions with.

    Attributes:
      log_dir: where logs go.
      raced: keep the idle workers of all competitors. Without a race, only the workers of one
        competitor live at a time, which needs less memory.
    """

    log_dir: Path
    raced: bool = True
    _pools: dict[tuple[str, int], list[SessionPool]] = attrs.field(factory=dict, init=False)
    _folder: Path = attrs.field(init=False)
    _stack: ExitStack = attrs.field(factory=ExitStack, init=False)

    def __enter__(self) -> Self:
        self._folder = Path(self._stack.enter_context(temporary_folder("workers")))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for pools in self._pools.values():
            for pool in pools:
                pool.stop() if kind is not None else pool.empty()
        self._stack.close()

    def open(
        self, settings: RunSettings, competitor: Competitor, plan: ProcessPlan
    ) -> SharedSession | InProcessSession:
        """Returns a free worker of a competitor, framework and replicate, started if there is none.

        Caches are those of competitor and framework; who has to compile anew has its own.

        Raises:
          SessionEnded: it did not come up.
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
                # Replicates find the first one's programs; without a race, all compile cold.
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
        return session

    def _end_others(self, name: str) -> None:
        for (other, _), pools in self._pools.items():
            if other != name:
                for pool in pools:
                    pool.empty()

    def may_have_failed(self, competitor: Competitor, framework: str, status: Status) -> bool:
        """Tells whether a trial may have ended as it did because of what its worker ran before."""
        name = _name(competitor, framework)
        served = (
            pool.served for key, pools in self._pools.items() if key[0] == name for pool in pools
        )
        return status not in _ITS_OWN and max(served, default=0) > 1


def _name(competitor: Competitor, framework: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", f"{framework}-{competitor}")
