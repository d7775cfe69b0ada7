"""The state of each job, from spool and queue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spool_support import fleet_of, units

from comparative_benchmark.fleet.engines import QueueEntry, QueueState
from comparative_benchmark.fleet.planning import plan_jobs
from comparative_benchmark.fleet.spool import CLAIM_EXPIRES_S, End, View
from comparative_benchmark.fleet.standing import (
    GRACE_S,
    Standing,
    State,
    bad_nodes,
    counts,
    may_retry,
    standings,
)

NOW = 1e6


@pytest.fixture
def standing(tmp_path):
    """Returns the standing of a single job."""
    plan = plan_jobs(fleet_of(tmp_path), units(1), revision="r", campaign="")
    key = plan.jobs[0].key

    def find(
        *, claimed=None, batch=None, finished=None, end=None, queue=None, age_s=0.0, unsupported=()
    ):
        view = View(
            claimed={} if claimed is None else {key: claimed},
            batches={f"{key}.{claimed}": batch} if batch else {},
            submitted_at={batch: NOW - age_s} if batch else {},
            finished=set() if finished is None else {f"{key}.{finished}"},
            ended=set() if end is None else {f"{key}.{claimed}"},
        )
        return standings(
            plan,
            view,
            queue,
            NOW,
            read_end=lambda _: end if isinstance(end, End) else None,
            claimed_at=lambda _: NOW - age_s,
            unsupported=dict(unsupported),
        )[key]

    return find


def entry(state, **more):
    return {"b": QueueEntry(state=state, **more)}


def test_a_job_that_nobody_has_claimed(standing):
    assert standing() == Standing(State.WAITING)
    found = standing(unsupported={"any": "no node offers +avx"})
    assert (found.state, found.detail) == (State.UNSUPPORTED, "no node offers +avx")


@pytest.mark.parametrize(
    ("age_s", "state"),
    [
        (CLAIM_EXPIRES_S - 1, State.CLAIMED),
        (CLAIM_EXPIRES_S + 1, State.WAITING),
        (-CLAIM_EXPIRES_S + 1, State.CLAIMED),
        (-CLAIM_EXPIRES_S - 1, State.WAITING),
    ],
)
def test_a_claim_without_a_batch_expires(standing, age_s, state):
    assert standing(claimed=0, age_s=age_s) == Standing(state, 1)


@pytest.mark.parametrize(
    ("state", "age_s", "expected"),
    [
        (QueueState.PENDING, 1e5, State.PENDING),
        (QueueState.RUNNING, 1e5, State.RUNNING),
        (QueueState.TIMEOUT, 1, State.TIMEOUT),
        (QueueState.LOST, 1, State.LOST),
        (QueueState.CANCELLED, 1, State.CANCELLED),
        (QueueState.ENDED, GRACE_S - 1, State.RUNNING),
        (QueueState.ENDED, GRACE_S + 1, State.LOST),
    ],
)
def test_a_batch_in_the_queue(standing, state, age_s, expected):
    found = standing(claimed=2, batch="b", queue=entry(state, node="n"), age_s=age_s)
    assert (found.state, found.attempts, found.batch, found.node) == (expected, 3, "b", "n")


@pytest.mark.parametrize(
    ("ended_s_ago", "expected"), [(GRACE_S - 1, State.RUNNING), (GRACE_S + 1, State.LOST)]
)
def test_the_grace_begins_at_the_end_if_it_is_known(standing, ended_s_ago, expected):
    queue = entry(QueueState.ENDED, ended_at=NOW - ended_s_ago)
    assert standing(claimed=0, batch="b", queue=queue, age_s=1e5).state is expected


def test_a_batch_that_the_queue_has_forgotten(standing):
    assert standing(claimed=0, batch="b", queue={}, age_s=GRACE_S - 1).state is State.PENDING
    assert standing(claimed=0, batch="b", queue={}, age_s=GRACE_S + 1).state is State.LOST
    assert standing(claimed=0, batch="b", queue={}, age_s=-GRACE_S - 1).state is State.LOST


def test_a_scheduler_that_does_not_answer_loses_nothing(standing):
    found = standing(claimed=0, batch="b", queue=None, age_s=1e6)
    assert (found.state, found.detail) == (State.PENDING, "the scheduler does not respond")


@pytest.mark.parametrize("queue", [None, {}, entry(QueueState.LOST)])
def test_results_count_most(standing, queue):
    end = End(ending="lost")
    found = standing(claimed=1, batch="b", finished=0, end=end, queue=queue, age_s=1e6)
    assert found.state is State.DONE
    assert found.attempts == 2


def test_an_end_counts_more_than_the_queue(standing):
    end = End(ending="failed", reason="exit code 1", node="n", at=7.0)
    found = standing(claimed=0, batch="b", end=end, queue=entry(QueueState.RUNNING))
    assert found == Standing(State.FAILED, 1, "b", "exit code 1", "n", True, 7.0)


def test_an_end_without_its_result_is_damage(standing):
    assert standing(claimed=0, batch="b", end=End(ending="done")).state is State.DAMAGED


def test_an_end_that_cannot_be_read_leaves_it_to_the_queue(standing):
    found = standing(claimed=0, batch="b", end="damaged", queue=entry(QueueState.LOST))
    assert found.state is State.LOST


def test_jobs_of_a_batch_share_a_standing_but_not_across_batches(tmp_path):
    plan = plan_jobs(fleet_of(tmp_path), units(4), revision="r", campaign="")
    keys = [job.key for job in plan.jobs]
    view = View(
        claimed=dict(zip(keys, (0, 0, 1, 0), strict=True)),
        batches={f"{keys[0]}.0": "b", f"{keys[1]}.0": "b", f"{keys[2]}.1": "b"},
        submitted_at={"b": NOW},
        finished={f"{keys[1]}.0"},
    )
    found = standings(
        plan,
        view,
        entry(QueueState.RUNNING),
        NOW,
        read_end=lambda _: None,
        claimed_at=lambda _: NOW,
        unsupported={},
    )
    states = [(found[key].state, found[key].attempts) for key in keys]
    assert states == [
        *((State.RUNNING, 1), (State.DONE, 1), (State.RUNNING, 2), (State.CLAIMED, 1))
    ]
    assert counts(found.values()) == {State.CLAIMED: 1, State.RUNNING: 2, State.DONE: 1}


def failed(*nodes):
    return [End(ending="failed", node=node) for node in nodes]


def test_a_node_where_all_attempts_fail_is_bad():
    ends = failed("a", "a", "a", "b", "b", "c", "c", "c", "c", None, None, None)
    done = [End(ending="done", node="c")]
    assert bad_nodes(ends, done) == {"a": 3}


def test_time_limits_and_cancellations_are_not_the_node_s_fault():
    ends = [End(ending=ending, node="a") for ending in ("timeout", "cancelled", "refused") * 3]
    assert bad_nodes(ends, []) == {}


def test_ends_of_results_are_read_only_as_far_as_needed():
    def none():
        raise AssertionError
        yield

    def few():
        yield End(ending="done", node="a")
        raise AssertionError

    assert bad_nodes(failed("a", "a"), none()) == {}
    assert bad_nodes(failed("a", "a", "a"), few()) == {}


@pytest.mark.parametrize("state", [State.FAILED, State.LOST])
def test_a_retry_waits_twice_as_long_each_time(state):
    def wait_s(attempts):
        return next(
            age
            for age in range(0, 10_000, 30)
            if may_retry(Standing(state, attempts, at=NOW), 99, NOW + age, longer=False)
        )

    assert [wait_s(1), wait_s(2), wait_s(3)] == [90, 150, 270]


@pytest.mark.parametrize("state", [State.CANCELLED, State.DAMAGED])
def test_other_retries_do_not_wait(state):
    assert may_retry(Standing(state, 1, at=NOW), 3, NOW, longer=False)
    assert not may_retry(Standing(state, 3, at=NOW), 3, NOW, longer=False)


def test_a_job_that_exceeded_its_time_limit_starts_again_if_asked():
    limit = Standing(State.TIMEOUT, 1, at=NOW)
    assert [may_retry(limit, 3, NOW, longer=longer) for longer in (False, True)] == [False, True]
    assert not may_retry(Standing(State.TIMEOUT, 3), 3, NOW, longer=True)


@given(
    state=st.sampled_from(State),
    attempts=st.integers(0, 5),
    at=st.floats(0, 1e7),
    longer=st.booleans(),
)
def test_never_again_what_runs_or_is_done(state, attempts, at, longer):
    retried = may_retry(Standing(state, attempts, at=at), 3, NOW, longer=longer)
    if state in (State.CLAIMED, State.PENDING, State.RUNNING, State.DONE):
        assert not retried
    # Nodes may be back.
    if state in (State.WAITING, State.UNSUPPORTED):
        assert retried
