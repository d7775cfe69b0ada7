"""Report on a race when each competitor has had one process."""

from comparative_benchmark.engine.trial import first_look
from comparative_benchmark.results.outcome import ProcessRecord
from comparative_benchmark.results.record import Status


def test_who_failed_or_gave_no_times_is_not_named(make_trial, finished):
    fast = make_trial(), finished()
    wrong = make_trial(), finished()
    wrong[1].add(ProcessRecord(status=Status.WRONG_OUTPUT))
    assert first_look([fast, fast, wrong], 3) == (
        "first processes: jax_xla:xla (jax) 2.5 ms, jax_xla:xla (jax) 2.5 ms; "
        "verdicts need at least 3 per competitor"
    )


def test_nothing_is_said_where_there_is_nothing_to_wait_for_or_to_compare(make_trial, finished):
    pair = make_trial(), finished()
    assert first_look([pair, pair], 1) is None
    assert first_look([pair], 3) is None
