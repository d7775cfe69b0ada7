"""Timers around those functions of the harness that take most of the time of `cbs run`."""

import functools
import importlib
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

# Timed functions and their rows. If one calls another, the inner time counts only for the inner.
_WRAPPED = (
    ("comparative_benchmark.api.measuring:select", "case selection"),
    ("comparative_benchmark.engine.session:Session.__init__", "worker start, until its greeting"),
    ("comparative_benchmark.engine.session:Session.__exit__", "worker exit"),
    (
        "comparative_benchmark.analysis.machine.other_processes:kill_marked",
        "search of /proc for stray processes",
    ),
    ("comparative_benchmark.engine.judging:Judge.verify", "verification"),
    ("comparative_benchmark.results.results_file:ResultsFile._rewrite", "results file"),
    ("comparative_benchmark.engine.runner:python_environment", "list of installed packages"),
    ("comparative_benchmark.engine.runner:describe", "host facts"),
    ("comparative_benchmark.engine.runner:git_revision", "git revision"),
    ("openxla.benchmark.artifacts.workload_store:find", "artifact look-up"),
    ("openxla.benchmark.artifacts.workload_store:publish", "artifact publication"),
    ("comparative_benchmark.terminal.console:Console.results", "table of results"),
    ("tempfile:TemporaryDirectory.cleanup", "removal of temporary files"),
)


class Spans:
    """Seconds by row, each without the time of inner rows; phases of workers are separate."""

    def __init__(self) -> None:
        self.orchestration: defaultdict[str, float] = defaultdict(float)
        self.work: defaultdict[str, float] = defaultdict(float)
        self.counts: defaultdict[str, int] = defaultdict(int)
        self._inner: list[float] = [0.0]

    def install(self, *, split_calls: bool = True) -> None:
        """Installs the timers.

        Args:
          split_calls: split each command to a worker into the worker's phases and the rest.
        """
        for path, row in _WRAPPED:
            self._wrap(path, row)
        if split_calls:
            self._wrap_calls()

    def _wrap(self, path: str, row: str) -> None:
        """Replaces a function with one that adds its time to a row."""
        module_name, _, name = path.partition(":")
        owner: Any = importlib.import_module(module_name)
        *parents, last = name.split(".")
        owner = functools.reduce(getattr, parents, owner)
        original = getattr(owner, last)

        @functools.wraps(original)
        def timed(*arguments: Any, **options: Any) -> Any:
            return self._timed(row, functools.partial(original, *arguments, **options))

        setattr(owner, last, timed)

    def _wrap_calls(self) -> None:
        """Splits each command to a worker into the worker's phases and the rest."""
        from comparative_benchmark.engine.messages import A, Measured, Prepared, command_of
        from comparative_benchmark.engine.session import Session

        original = Session.call
        seen: dict[int, dict[str, float]] = {}

        def call(session: Session, kind: type[A], **arguments: Any) -> A:
            row = f"worker, `{command_of(kind)}` outside phases"
            answer = self._timed(row, lambda: original(session, kind, **arguments))
            if isinstance(answer, Prepared):  # its phases start from zero for each workload
                seen[id(session)] = {}
            before = seen.setdefault(id(session), {})
            phases_ms = {name: phase.ms for name, phase in (answer.phases or {}).items()}
            # Only the timed loop is work, without the rest of its phase.
            phases_ms.pop("execute", None)
            if isinstance(answer, Measured):
                assert answer.block.wall_ms is not None
                phases_ms["execute"] = before.get("execute", 0.0) + answer.block.wall_ms
            for phase, ms in phases_ms.items():
                seconds = (ms - before.get(phase, 0.0)) / 1e3
                before[phase] = ms
                self.work[f"prepare: {phase}" if isinstance(answer, Prepared) else phase] += seconds
                self.orchestration[row] -= seconds
            return answer

        setattr(Session, "call", call)  # noqa: B010  # mypy: a method is not a variable

    def _timed(self, row: str, call: Callable[[], T]) -> T:
        start = time.perf_counter()
        self._inner.append(0.0)
        try:
            return call()
        finally:
            elapsed = time.perf_counter() - start
            self.orchestration[row] += elapsed - self._inner.pop()
            self.counts[row] += 1
            self._inner[-1] += elapsed
