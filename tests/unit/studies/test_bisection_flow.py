"""A whole bisection with an oracle of given answers: its journal, its report, its end."""

import json

import pytest

from comparative_benchmark.studies.bisection import bisection
from comparative_benchmark.studies.bisection.bisection import Bisection, Journal, as_json
from comparative_benchmark.studies.bisection.racing import Metric, sought_threshold
from comparative_benchmark.studies.bisection.search import (
    Answer,
    BisectError,
    Candidate,
    CaseAnswer,
    Finding,
    Ratio,
    UnjudgeableError,
)


class Slowness:
    """An oracle that knows the latency of each candidate and judges without noise."""

    def __init__(self, times, *, broken=(), unclear=None, breaks_down_after=None):
        self.times = times
        self.broken = set(broken)
        self.unclear = dict(unclear or {})
        self.left = breaks_down_after
        self.asked = []

    def compare(self, good, candidate, focus, *, attempt):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        self.asked.append((good.name, candidate.name, attempt))
        for one in (good, candidate):
            if one.name in self.broken:
                raise UnjudgeableError(f"{one.name}: installation failed")
        ratio = self.times[candidate.name] / self.times[good.name]
        limit = 0.01 if focus.threshold is None else focus.threshold
        answer = Answer.BAD if ratio > 1 + limit else Answer.GOOD
        if attempt < self.unclear.get(candidate.name, 0):
            answer = Answer.UNCLEAR
        value = Ratio(estimate=ratio, low=ratio - 0.001, high=ratio + 0.001)
        case = CaseAnswer(case="toy", answer=answer, reason="timed", ratio=value)
        return Finding(cases=(case,), results="races/x.json")


def _run(tmp_path, oracle, names=None, **options):
    lines = []
    with Journal(tmp_path / "bisection.json", {"package": "toy"}) as journal:
        if not journal.candidates:
            journal.start([Candidate(name=name) for name in names or oracle.times])
        outcome = Bisection(
            oracle,
            journal,
            say=lines.append,
            **{"threshold": lambda bad: sought_threshold(bad, Metric.LATENCY.noise), **options},
        ).run()
        journal.conclude(as_json(outcome))
    return (
        outcome,
        lines,
        bisection.as_text(outcome, Metric.LATENCY.word, what="toy", effort="--attempts"),
    )


def _times(*values):
    return {str(index): value for index, value in enumerate(values)}


def test_the_first_slow_one_is_found_and_confirmed_next_to_its_neighbour(tmp_path):
    oracle = Slowness(_times(*[1.0] * 11, *[1.08] * 9))
    outcome, _, told = _run(tmp_path, oracle)
    assert outcome.is_exact
    assert told.startswith("toy became slower in 11; the last good candidate is 10\n")
    assert oracle.asked[0] == ("0", "19", 0)
    assert oracle.asked[-1] == ("10", "11", 0)
    assert len(oracle.asked) <= 2 + 5
    assert "1.080 (1.079-1.081)" in told
    state = json.loads((tmp_path / "bisection.json").read_text())
    assert state["conclusion"]["first_bad"] == "11"
    assert state["conclusion"]["found"] is True


def test_a_smaller_change_before_it_is_not_taken_for_the_one_that_is_sought(tmp_path):
    outcome, _, _ = _run(tmp_path, Slowness(_times(1, 1, 1.02, 1.02, 1.02, 1.12, 1.12)))
    assert outcome.conclusion.first_bad == 5
    assert outcome.is_exact


def test_ends_side_by_side_are_raced_once(tmp_path):
    oracle = Slowness(_times(1.0, 1.1))
    outcome, _, _ = _run(tmp_path, oracle)
    assert outcome.is_exact
    assert oracle.asked == [("0", "1", 0)]


def test_a_bad_end_that_is_not_bad_is_reported(tmp_path):
    oracle = Slowness(_times(1.0, 1.0, 1.0))
    outcome, _, told = _run(tmp_path, oracle)
    assert not outcome.is_exact
    assert told.startswith("toy 2 is not slower than 0: nothing to bisect\n")
    assert len(oracle.asked) == 1


def test_the_users_threshold_holds_for_the_ends_too(tmp_path):
    oracle = Slowness(_times(1.0, 1.03))
    outcome, _, told = _run(tmp_path, oracle, threshold=lambda _: 0.1)
    assert not outcome.is_exact
    assert "nothing to bisect" in told


def test_another_machine_does_not_continue(tmp_path):
    path = tmp_path / "bisection.json"
    with Journal(path, {"package": "toy"}) as earlier:  # of a version that wrote no machine
        earlier.start([Candidate(name="0")])
    with Journal(path, {"package": "toy", "machine": "A", "variables": {}}) as journal:
        journal.conclude({})
    with pytest.raises(BisectError, match="machine was 'A', now 'B'"):
        Journal(path, {"package": "toy", "machine": "B", "variables": {}}).__enter__()


def test_unclear_ends_are_looked_at_again_and_then_told(tmp_path):
    oracle = Slowness(_times(1.0, 1.0, 1.1), unclear={"2": 2})
    outcome, lines, told = _run(tmp_path, oracle)
    assert not outcome.is_exact
    assert "the result for 2 is unclear; repeating with more measurements" in lines
    assert told.startswith("it is unclear whether toy 2 is slower than 0 (attempts: 2): increase")
    # With one more allowed attempt, it continues from there.
    outcome, _, _ = _run(tmp_path, oracle, attempts=3)
    assert outcome.is_exact
    assert ("0", "2", 2) in oracle.asked


def test_what_does_not_install_is_skipped_and_named(tmp_path):
    oracle = Slowness(_times(1, 1, 1, 1.1, 1.1, 1.1), broken="23")
    outcome, lines, told = _run(tmp_path, oracle)
    assert not outcome.is_exact
    assert told.startswith("toy became slower after 1 and no later than 4\n")
    assert "candidates in between without a clear result: 2, 3" in told
    assert any(line.endswith("skipped: 2: installation failed") for line in lines)


@pytest.mark.parametrize("end", ["0", "5"])
def test_an_end_that_does_not_install_is_an_error_and_tried_again(tmp_path, end):
    oracle = Slowness(_times(1, 1, 1, 1.1, 1.1, 1.1), broken=end)
    with pytest.raises(BisectError, match=f"ends cannot be compared: {end}: installation failed"):
        _run(tmp_path, oracle)
    oracle.broken.clear()
    assert _run(tmp_path, oracle)[0].is_exact


def test_several_small_steps_are_told_from_one(tmp_path):
    outcome, _, told = _run(tmp_path, Slowness(_times(1.0, 1.03, 1.06, 1.09, 1.12)))
    assert not outcome.is_exact
    assert "the change may have come in small steps" in told


def test_steps_back_and_forth_are_told_when_everything_is_judged(tmp_path):
    oracle = Slowness(_times(1.0, 1.1, 1.0, 1.0, 1.1))
    _, _, told = _run(tmp_path, oracle, everything=True)
    assert "toy became slower in 4; the last good candidate is 3" in told
    assert "the results alternate: 1 is bad, but 2 after it is good" in told


@pytest.mark.parametrize("survived", range(6))
def test_an_interrupted_bisection_goes_on_and_asks_nothing_twice(tmp_path, survived):
    times = _times(*[1.0] * 5, *[1.2] * 4)
    oracle = Slowness(times, breaks_down_after=survived)
    try:
        outcome, _, _ = _run(tmp_path, oracle)
    except KeyboardInterrupt:
        oracle.left = None
        outcome, _, _ = _run(tmp_path, oracle)
    assert outcome.is_exact
    assert outcome.conclusion.first_bad == 5
    assert len(set(oracle.asked)) == len(oracle.asked)


def test_what_is_done_is_told_again_without_a_race(tmp_path):
    oracle = Slowness(_times(1.0, 1.0, 1.1))
    first = _run(tmp_path, oracle)[2]
    asked = len(oracle.asked)
    assert _run(tmp_path, oracle)[2] == first
    assert len(oracle.asked) == asked


def test_the_line_of_candidates_stays_when_more_are_released(tmp_path):
    _run(tmp_path, Slowness(_times(1.0, 1.0, 1.1)))
    outcome, _, _ = _run(tmp_path, Slowness(_times(1.0, 1.0, 1.1, 1.2)))
    assert [candidate.name for candidate in outcome.candidates] == ["0", "1", "2"]


def test_another_question_is_not_answered_from_this_state(tmp_path):
    _run(tmp_path, Slowness(_times(1.0, 1.1)))
    other = Journal(tmp_path / "bisection.json", {"package": "other"})
    with pytest.raises(BisectError, match=r"package was 'toy', now 'other'.*choose another folder"):
        other.__enter__()


def test_two_at_once_are_refused(tmp_path):
    with Journal(tmp_path / "bisection.json", {}):
        second = Journal(tmp_path / "bisection.json", {})
        with pytest.raises(BisectError, match="another bisection is running in"):
            second.__enter__()


STATE = (
    '{"schema_version": %d, "kind": "bisection", "question": {}, "candidates": [%s], '
    '"comparisons": []}'
)


@pytest.mark.parametrize("text", ["", "[]", "{}", STATE % (1, '{"x": 1}'), STATE % (9, "")])
def test_a_damaged_state_is_refused_and_left_as_it_is(tmp_path, text):
    path = tmp_path / "bisection.json"
    path.write_text(text)
    with pytest.raises(BisectError, match="move it, or choose another folder"):
        Journal(path, {}).__enter__()
    assert path.read_text() == text
