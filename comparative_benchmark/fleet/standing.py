"""Where each job of a plan stands, from the spool and the queue."""

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import attrs

from comparative_benchmark.fleet.engines import QueueEntry, QueueState
from comparative_benchmark.fleet.planning import Plan
from comparative_benchmark.fleet.spool import Attempt, End, View, expired

# A batch that the queue does not list this long after its submission is lost: schedulers forget
# batches that have ended (Slurm's MinJobAge). So is a batch without files this long after its end:
# files of other machines appear late on a shared file system.
GRACE_S = 300.0
# A node with this many failed attempts, and none that succeeded, gets no further ones.
_FAILURES_OF_A_BAD_NODE = 3
_FIRST_DELAY_S = 60.0


class State(enum.Enum):
    """State of a job."""

    WAITING = "waiting"
    CLAIMED = "claimed"
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    TIMEOUT = "timeout"
    LOST = "lost"
    CANCELLED = "cancelled"
    DAMAGED = "damaged"
    UNSUPPORTED = "unsupported"


# States of jobs that a queue holds, and of jobs whose last attempt gave no result.
ACTIVE = frozenset({State.CLAIMED, State.PENDING, State.RUNNING})
WITHOUT_RESULT = frozenset(
    {State.FAILED, State.TIMEOUT, State.LOST, State.CANCELLED, State.DAMAGED}
)
_OF_QUEUE = {
    QueueState.PENDING: State.PENDING,
    QueueState.RUNNING: State.RUNNING,
    QueueState.TIMEOUT: State.TIMEOUT,
    QueueState.LOST: State.LOST,
    QueueState.CANCELLED: State.CANCELLED,
}


@attrs.frozen
class Standing:
    """State of a job.

    Attributes:
      state: its state.
      attempts: number of attempts so far.
      batch: batch of the last attempt; None if it was not submitted.
      detail: reason of the state; empty without one.
      node: node of the last attempt, if known.
      recorded: whether the spool records the end of the last attempt.
      at: end of the last attempt, on the file system's clock; 0 if unknown.
    """

    state: State
    attempts: int = 0
    batch: str | None = None
    detail: str = ""
    node: str | None = None
    recorded: bool = False
    at: float = 0.0


_WAITING = Standing(State.WAITING)


def standings(
    plan: Plan,
    view: View,
    queue: Mapping[str, QueueEntry] | None,
    now: float,
    *,
    read_end: Callable[[str], End | None],
    claimed_at: Callable[[Attempt], float],
    unsupported: Mapping[str, str],
) -> dict[str, Standing]:
    """Returns the standing of each job by its key.

    Args:
      plan: the jobs.
      view: content of the spool.
      queue: batches in the queue; None if the scheduler does not answer.
      now: time of the file system.
      read_end: returns the end of an attempt.
      claimed_at: returns the time of the claim of an attempt.
      unsupported: reasons, by class, why no node can run its jobs.
    """
    finished = {attempt.partition(".")[0]: attempt for attempt in view.finished}
    states: dict[str, Standing] = {}
    # Most jobs of a batch share a standing: polls of many jobs are twice as fast.
    shared: dict[tuple[bool, int, str | None], Standing] = {}
    for job in plan.jobs:
        key = job.key
        latest = view.claimed.get(key)
        attempts = 0 if latest is None else latest + 1
        attempt = finished.get(key)
        name = attempt or f"{key}.{latest}"
        batch = view.batches.get(name)
        kind = (attempt is not None, attempts, batch)
        if attempt is None and name in view.ended and (end := read_end(name)) is not None:
            states[key] = _ended(end, attempts, batch)
        elif kind in shared:
            states[key] = shared[kind]
        elif attempt is not None:
            states[key] = shared[kind] = Standing(State.DONE, attempts, batch)
        elif latest is None:
            reason = unsupported.get(job.machine_class)
            states[key] = _WAITING if reason is None else Standing(State.UNSUPPORTED, detail=reason)
        elif batch is None:
            old = expired(now, claimed_at(Attempt(key, latest)))
            states[key] = Standing(State.WAITING if old else State.CLAIMED, attempts)
        else:
            entry = (queue or {}).get(batch)
            since = (entry and entry.ended_at) or view.submitted_at.get(batch, now)
            late = expired(now, since, GRACE_S)
            states[key] = shared[kind] = _queued(attempts, batch, queue, late=late)
    return states


def counts(states: Iterable[Standing]) -> dict[State, int]:
    """Returns how many jobs are in each state, in the order of a job's life."""
    counted = Counter(item.state for item in states)
    return {state: counted[state] for state in State if counted[state]}


def bad_nodes(failed: Iterable[End], done: Iterable[End]) -> dict[str, int]:
    """Returns nodes where attempts only fail, with the number of failures.

    One such node would otherwise take every retry, because it is free again at once.

    Args:
      failed: ends of attempts without results.
      done: ends of attempts with results; read only as far as needed, because there are many.
    """
    failures = Counter(
        end.node for end in failed if end.node is not None and end.ending in ("failed", "lost")
    )
    bad = {node: n for node, n in sorted(failures.items()) if n >= _FAILURES_OF_A_BAD_NODE}
    for end in done if bad else ():
        if end.node is not None and bad.pop(end.node, 0) and not bad:
            break
    return bad


def may_retry(standing: Standing, attempts: int, now: float, *, longer: bool) -> bool:
    """Returns whether a job without a result should be started again.

    The delay doubles with each attempt. A job that exceeded its time limit starts again only once,
    and only with a longer limit.

    Args:
      standing: standing of the job.
      attempts: largest number of attempts.
      now: time of the file system.
      longer: whether the user asked for more time, and no earlier attempt exceeded its limit.
    """
    if standing.state in (State.WAITING, State.UNSUPPORTED):
        return True
    if standing.state not in WITHOUT_RESULT or standing.attempts >= attempts:
        return False
    if standing.state is State.TIMEOUT:
        return longer
    if standing.state in (State.CANCELLED, State.DAMAGED):
        return True
    delay_s = _FIRST_DELAY_S * 2 ** (standing.attempts - 1)
    return not standing.at or expired(now, standing.at, delay_s)


def _ended(end: End, attempts: int, batch: str | None) -> Standing:
    # A result that was found damaged, or removed, has an end with `done`.
    state = State.DAMAGED if end.ending == "done" else State(end.ending)
    return Standing(state, attempts, batch, end.reason, end.node, True, end.at)


def _queued(
    attempts: int, batch: str, queue: Mapping[str, QueueEntry] | None, *, late: bool
) -> Standing:
    if queue is None:
        return Standing(State.PENDING, attempts, batch, "the scheduler does not respond")
    entry = queue.get(batch)
    if entry is None:
        if not late:
            return Standing(State.PENDING, attempts, batch, "not in the queue yet")
        return Standing(State.LOST, attempts, batch, "the scheduler no longer lists the batch")
    if (state := _OF_QUEUE.get(entry.state)) is None:
        # Its files may appear late.
        state = State.LOST if late else State.RUNNING
        return Standing(
            state, attempts, batch, entry.reason or "ended without a result", entry.node
        )
    return Standing(state, attempts, batch, entry.reason, entry.node)
