"""A simulated cluster: an engine of `cbs fleet` with a virtual clock, and faults at random.

It behaves like a scheduler with a limit on queued batches, which forgets ended batches after a
while. Its nodes write results into a real spool. All faults come from one seed.
"""

import hashlib
import heapq
import itertools
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
from _made_results import document

from comparative_benchmark.fleet.description import Fleet, MachineClass
from comparative_benchmark.fleet.engines import (
    EngineError,
    FullError,
    QueueEntry,
    QueueState,
    Submission,
)
from comparative_benchmark.fleet.features import Node
from comparative_benchmark.fleet.planning import Unit
from comparative_benchmark.fleet.spool import Attempt, Batch, End, Ending, Spool, Work, read_batch
from comparative_benchmark.request import RunRequest

MAX_QUEUED = 50
# Slurm's MinJobAge: ended batches leave the queue.
_FORGOTTEN_S = 300.0
_ACTIVE = (QueueState.PENDING, QueueState.RUNNING)
_JOB_S = 60.0
_START = 1.8e9
# After this many attempts, a job has no more faults: it must end.
_PATIENCE = 6

# Faults of a batch: the state and reason that the queue shows, whether the node goes down, and
# whether the scheduler starts the batch again.
_BATCH_FAULTS = {
    "node failure": (QueueState.LOST, "NODE_FAIL", True, False),
    "node failure, requeued": (QueueState.LOST, "NODE_FAIL", True, True),
    "preemption": (QueueState.LOST, "PREEMPTED", False, False),
    "preemption, requeued": (QueueState.LOST, "PREEMPTED", False, True),
    "cancelled by an administrator": (QueueState.CANCELLED, "", False, False),
    "batch killed without a trace": (QueueState.ENDED, "", False, False),
}
_START_FAULTS = ("launch failure without a node", "batch started twice")
_JOB_FAULTS = (
    *("job failed", "half a result", "empty result", "result of another job", "NaN result"),
    *("late files", "torn end", "no end", "foreign file", "unfinished file", "straggler"),
)


class Killed(BaseException):
    """The submitter is killed at this point."""


class SimulatedSpool(Spool):
    """A spool whose file system has a virtual clock."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        super().__init__(folder)
        self._clock = clock

    def now(self) -> float:
        """Returns the virtual time."""
        return self._clock()

    def _take(self, folder: Path, claim: Path) -> bool:
        taken = super()._take(folder, claim)
        if taken:
            os.utime(claim, (self.now(), self.now()))
        return taken


@attrs.define(eq=False)
class _Queued:
    """A batch in the queue, the rest of its execution, and its jobs that have not ended."""

    submission: Submission
    state: QueueState = QueueState.PENDING
    node: str | None = None
    reason: str = ""
    changed: float = 0.0
    starts: int = 0
    steps: Iterator[float] | None = None
    rest: tuple[Work, ...] = ()


class Cluster:
    """Nodes and their queue.

    Attributes:
      faults: number of injected faults, by name.
      on_submit: called before each submission, to let another submitter act in between.
    """

    def __init__(self, *, nodes: int, seed: int, rate: float, limit: int | None) -> None:
        self.now = _START
        self.faults: Counter[str] = Counter()
        self.spool: Spool
        self.on_submit: Callable[[], None] = lambda: None
        self._random = random.Random(seed)
        self._rate = rate
        self._limit = limit
        self._down_until = {f"node{number:03d}": 0.0 for number in range(nodes)}
        self._bad = "node000" if rate else None
        self._queue: dict[str, _Queued] = {}
        self._busy: dict[str, _Queued] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._away_until = 0.0
        self._stragglers: set[str] = set()

    # The engine.

    def nodes(self) -> list[Node]:
        """Returns all nodes."""
        self._answer()
        return [
            Node(name=name, features=frozenset({"cpu"}), up=until <= self.now)
            for name, until in self._down_until.items()
        ]

    def submit(self, submission: Submission) -> str:
        """Adds a batch to the queue."""
        self.on_submit()
        self._answer()
        self._maybe_killed("submitter killed before sbatch")
        if self._limit is not None and len(self._active()) >= self._limit:
            raise FullError
        self._queue[submission.name] = _Queued(submission)
        self._maybe_killed("submitter killed after sbatch")
        if self._happens("no answer after sbatch", 0.02):
            raise EngineError("no answer")
        return f"{next(self._order)}"

    def poll(self, prefix: str) -> dict[str, QueueEntry]:
        """Returns the batches that the queue has not forgotten."""
        self._answer()
        self._queue = {
            name: item
            for name, item in self._queue.items()
            if item.state in _ACTIVE or self.now - item.changed < _FORGOTTEN_S
        }
        return {
            name: QueueEntry(state=item.state, node=item.node, reason=item.reason)
            for name, item in self._queue.items()
            if name.startswith(prefix)
        }

    def cancel(self, names: Sequence[str]) -> None:
        """Cancels batches."""
        for name in names:
            self._finish(self._queue[name], QueueState.CANCELLED)

    def room(self, queued: int) -> int | None:
        """Returns the room for further batches."""
        return None if self._limit is None else max(0, self._limit - queued)

    def continue_later(self, command: Sequence[str], name: str) -> bool:
        """Returns False: the simulation submits again by itself."""
        return False

    def collect(self, folder: Path) -> list[str]:
        """Returns nothing: the spool is shared."""
        return []

    # The world.

    @property
    def idle(self) -> bool:
        """Whether nothing is queued and nothing else will happen."""
        return not self._active() and not self._events

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        until = self.now + seconds
        if self._happens("maintenance", 0.02):
            for name in self._random.sample(sorted(self._down_until), len(self._down_until) // 2):
                self._take_down(name, 7200.0)
        if self._happens("controller down", 0.05):
            self._away_until = self.now + self._random.uniform(60, 900)
        self._start_pending()
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
            self._start_pending()
        self.now = until

    def _active(self) -> list[_Queued]:
        return [item for item in self._queue.values() if item.state in _ACTIVE]

    def _answer(self) -> None:
        if self.now < self._away_until:
            raise EngineError("the controller does not answer")

    def _happens(self, fault: str, probability: float) -> bool:
        happens = self._rate > 0 and self._random.random() < probability
        self.faults[fault] += happens
        return happens

    def _maybe_killed(self, fault: str) -> None:
        if self._happens(fault, 0.03):
            raise Killed

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), action))

    def _start_pending(self) -> None:
        for item in self._active():
            if item.state is not QueueState.PENDING:
                continue
            free = [
                name
                for name in item.submission.nodes
                if name not in self._busy and self._down_until[name] <= self.now
            ]
            if free:
                self._start(item, free[0])

    def _start(self, item: _Queued, node: str) -> None:
        if self._happens("launch failure without a node", 0.05):
            self._set(item, QueueState.LOST, None, "JobLaunchFailure")
            return
        self._set(item, QueueState.RUNNING, node, "")
        item.starts += 1
        item.steps = self._execution(item, read_batch(item.submission.file))
        self._busy[node] = item
        if self._happens("batch started twice", 0.03):
            twin = self._execution(item, read_batch(item.submission.file))
            self._later(1.0, lambda: self._drain(twin))
        self._step(item)
        starts = item.starts
        self._later(item.submission.time_limit_s, lambda: self._time_out(item, starts))

    def _drain(self, steps: Iterator[float]) -> None:
        if (seconds := next(steps, None)) is not None:
            self._later(seconds, lambda: self._drain(steps))

    def _step(self, item: _Queued) -> None:
        steps = item.steps
        if steps is None or item.state is not QueueState.RUNNING:
            return
        if (seconds := next(steps, None)) is None:
            if item.steps is steps:
                self._finish(item, QueueState.ENDED)
            return
        # A batch that has been started again has other steps.
        self._later(seconds, lambda: self._step(item) if item.steps is steps else None)

    def _time_out(self, item: _Queued, starts: int) -> None:
        if item.state is not QueueState.RUNNING or item.starts != starts:
            return
        # The node records this, too.
        for number, work in enumerate(item.rest):
            ending: Ending = "cancelled" if number else "timeout"
            attempt = Attempt(work.key, work.attempt)
            self.spool.end(attempt, End(ending=ending, node=item.node, at=self.now))
        self._finish(item, QueueState.TIMEOUT)

    def _finish(self, item: _Queued, state: QueueState, reason: str = "") -> None:
        if item.node is not None and self._busy.get(item.node) is item:
            del self._busy[item.node]
        item.steps = None
        self._set(item, state, item.node, reason)

    def _set(self, item: _Queued, state: QueueState, node: str | None, reason: str) -> None:
        item.state, item.node, item.reason, item.changed = state, node, reason, self.now

    def _take_down(self, node: str, seconds: float) -> None:
        self._down_until[node] = self.now + seconds
        self._later(seconds, lambda: None)
        if (item := self._busy.get(node)) is not None:
            self._finish(item, QueueState.LOST, "NODE_FAIL")

    def _execution(self, item: _Queued, batch: Batch) -> Iterator[float]:
        """Yields the seconds until the batch's next step."""
        spool, node, starts = self.spool, item.node or "", item.starts
        yield 5.0
        for number, work in enumerate(batch.jobs):
            item.rest = batch.jobs[number:]
            attempt = Attempt(work.key, work.attempt)
            if spool.has_result(attempt):
                continue
            faulty = work.attempt < _PATIENCE and starts < _PATIENCE
            if node == self._bad and faulty:
                self.faults["bad node"] += 1
                spool.end(attempt, End(ending="failed", reason="bad", node=node, at=self.now))
                continue
            fault = self._draw() if faulty else None
            if fault in _BATCH_FAULTS:
                yield self._random.uniform(1, _JOB_S)
                self._end_batch(item, node, fault)
                return
            if fault == "straggler" and work.key not in self._stragglers:
                # Longer than the limit once: the fleet doubles it only once.
                self._stragglers.add(work.key)
                yield item.submission.time_limit_s * 1.1
            yield _JOB_S
            end = End(ending="done", node=node, at=self.now, wall_s=_JOB_S)
            self._store(batch, work, end, starts, fault)

    def _draw(self) -> str | None:
        if self._random.random() >= self._rate:
            return None
        fault = self._random.choice([*_BATCH_FAULTS, *_JOB_FAULTS])
        self.faults[fault] += 1
        return fault

    def _end_batch(self, item: _Queued, node: str, fault: str) -> None:
        state, reason, is_down, is_requeued = _BATCH_FAULTS[fault]
        self._finish(item, state, reason)
        if is_down:
            self._take_down(node, 1800.0)
        if is_requeued:
            self._set(item, QueueState.PENDING, None, "BeginTime")

    def _store(self, batch: Batch, work: Work, end: End, starts: int, fault: str | None) -> None:
        spool = self.spool
        attempt = Attempt(work.key, work.attempt)
        path = spool.result_file(attempt.name)
        content = result_of(batch, work, end.node or "", starts - 1)
        match fault:
            case "job failed":
                spool.end(attempt, attrs.evolve(end, ending="failed", reason="exit code 1"))
                return
            case "half a result":
                content = content[: self._random.randrange(1, len(content) - 2)]
            case "empty result":
                content = b""
            case "result of another job":
                content = content.replace(work.key.encode(), work.key[::-1].encode())
            case "NaN result":
                content = content.replace(b'"wall_s": ', b'"wall_s": NaN, "x": ')
            case "late files":
                self._later(self._random.uniform(60, 1200), lambda: _write(path, content))
                spool.end(attempt, end)
                return
            case "torn end":
                _write(spool.folder / "ends" / f"{attempt.name}.json", b'{"ending": "do')
            case "foreign file":
                _write(spool.folder / "results" / f"copy of {path.name}", content)
            case "unfinished file":
                _write(path.with_name(f".unfinished-{work.key}"), content[:10])
        _write(path, content)
        if fault != "no end":
            spool.end(attempt, end)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _template() -> bytes:
    made: dict[str, Any] = document(1)
    [run], [result] = made["runs"], made["benchmarks"]
    run["run_id"] = result["run_id"] = "@RUN@"
    allocation = {"fleet": "f", "campaign": "", "machine_class": "@CLASS@", "job": "@JOB@"}
    where = {"node": "@NODE@", "engine": "simulated", "environment_sha256": "0" * 64}
    run["allocation"] = {**allocation, **where, "attempt": "@ATTEMPT@", "restarts": "@RESTARTS@"}
    # One sample: a real result has hundreds, and time is linear in its size.
    return json.dumps(made).encode()


_TEMPLATE = _template()


def result_of(batch: Batch, work: Work, node: str, restarts: int) -> bytes:
    """Returns the results file of a job: one run with one result."""
    identity = f"{work.key}.{work.attempt}.{batch.name}.{restarts}"
    values = {
        b"@RUN@": f"run-{hashlib.sha256(identity.encode()).hexdigest()[:16]}".encode(),
        b"@CLASS@": batch.machine_class.encode(),
        b"@JOB@": work.key.encode(),
        b"@NODE@": node.encode(),
        b'"@ATTEMPT@"': str(work.attempt).encode(),
        b'"@RESTARTS@"': str(restarts).encode(),
    }
    content = _TEMPLATE
    for name, value in values.items():
        content = content.replace(name, value)
    return content


def fleet_of(folder: Path, *, classes: int, repeats: int) -> Fleet:
    """Returns a fleet with one run; its file contains only a name."""
    path = folder / "FLEET.toml"
    path.write_text('name = "simulated"\n', encoding="utf-8")
    return Fleet(
        path=path,
        name="simulated",
        spool=folder / "spool",
        runs=(RunRequest(name="models/.+", backends=("pt_inductor:eager", "jax_xla:xla")),),
        classes=tuple(
            MachineClass(name=f"class{number}", repeats=repeats, time_limit_s=1200)
            for number in range(classes)
        ),
        attempts=100,
        canaries=False,
    )


def units(number: int) -> Iterator[Unit]:
    """Yields made-up workloads of two cases."""
    for index in range(number):
        label = f"MODEL{index:06d}_FP32"
        cases = tuple(f"models/{label}_{name}_BATCH1/inputs/DEFAULT" for name in ("PT", "JAX"))
        yield Unit(
            run=0,
            digest=hashlib.sha256(label.encode()).hexdigest(),
            label=label,
            cases=cases,
            competitors=("pt_inductor:eager", "jax_xla:xla"),
            trials=1,
        )
