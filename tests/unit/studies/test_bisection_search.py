"""The search for the first bad candidate, against every kind of oracle."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comparative_benchmark.studies.bisection.search import Answer, Search, locate

GOOD, BAD, UNCLEAR, SKIPPED = Answer.GOOD, Answer.BAD, Answer.UNCLEAR, Answer.SKIPPED


class Oracle:
    """Returns known answers and counts the calls."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []

    def __call__(self, index):
        assert index not in self.asked, "asked twice"
        assert 0 < index < len(self.answers) - 1, "the ends are known"
        self.asked.append(index)
        return self.answers[index]


@st.composite
def steps(draw):
    """A line with one step, at the drawn place."""
    count = draw(st.integers(2, 70))
    first_bad = draw(st.integers(1, count - 1))
    return [GOOD] * first_bad + [BAD] * (count - first_bad), first_bad


@st.composite
def steps_with_gaps(draw):
    """A line with one step, and candidates that cannot be judged."""
    answers, first_bad = draw(steps())
    gaps = draw(st.sets(st.integers(1, max(1, len(answers) - 2)), max_size=len(answers)))
    for index in gaps:
        if 0 < index < len(answers) - 1:
            answers[index] = draw(st.sampled_from([UNCLEAR, SKIPPED]))
    return answers, first_bad


@given(steps())
def test_one_step_is_found_in_as_many_questions_as_halving_takes(drawn):
    answers, first_bad = drawn
    oracle = Oracle(answers)
    found = locate(len(answers), oracle)
    assert (found.last_good, found.first_bad) == (first_bad - 1, first_bad)
    assert found.exact
    assert not found.contradictions
    assert len(oracle.asked) <= math.ceil(math.log2(max(2, len(answers) - 1)))


@given(steps_with_gaps())
def test_what_can_not_be_judged_is_left_between_and_nothing_else(drawn):
    answers, first_bad = drawn
    found = locate(len(answers), Oracle(answers))
    assert answers[found.last_good] is GOOD
    assert answers[found.first_bad] is BAD
    assert found.last_good < first_bad <= found.first_bad
    assert list(found.suspects) == list(range(found.last_good + 1, found.first_bad))
    assert all(answers[index] in (UNCLEAR, SKIPPED) for index in found.suspects)


@given(steps_with_gaps())
def test_gaps_away_from_the_step_cost_no_exactness(drawn):
    answers, first_bad = drawn
    around = answers[first_bad - 1 : first_bad + 1]
    found = locate(len(answers), Oracle(answers))
    assert found.exact == (around == [GOOD, BAD])


@given(st.lists(st.sampled_from(list(Answer)), max_size=40))
def test_of_answers_that_go_back_and_forth_a_real_step_is_found(between):
    answers = [GOOD, *between, BAD]
    found = locate(len(answers), Oracle(answers))
    assert answers[found.last_good] is GOOD
    assert answers[found.first_bad] is BAD
    assert all(answers[index] in (UNCLEAR, SKIPPED) for index in found.suspects)


@given(st.lists(st.sampled_from(list(Answer)), max_size=40))
def test_asking_everything_finds_the_last_step_and_every_contradiction(between):
    answers = [GOOD, *between, BAD]
    oracle = Oracle(answers)
    found = locate(len(answers), oracle, everything=True)
    assert sorted(oracle.asked) == list(range(1, len(answers) - 1))
    goods = [index for index, answer in enumerate(answers) if answer is GOOD]
    assert found.last_good == max(goods)
    unjust = {i for i, answer in enumerate(answers) if answer is BAD and i < max(goods)}
    assert {bad for bad, _ in found.contradictions} == unjust
    for bad, good in found.contradictions:
        assert answers[good] is GOOD
        assert good > bad


@given(steps(), st.data())
def test_known_answers_are_not_asked_for_again(drawn, data):
    answers, first_bad = drawn
    inner = range(1, len(answers) - 1)
    chosen = data.draw(st.sets(st.sampled_from(inner))) if inner else set()
    oracle = Oracle(answers)
    found = locate(len(answers), oracle, known={index: answers[index] for index in chosen})
    assert found.first_bad == first_bad
    assert not chosen & set(oracle.asked)


def test_a_stretch_that_does_not_build_is_left_quickly():
    broken = set(range(40, 60))
    answers = [GOOD] * 71 + [BAD] * 30
    oracle = Oracle([SKIPPED if i in broken else answer for i, answer in enumerate(answers)])
    assert locate(101, oracle).first_bad == 71
    assert len(broken & set(oracle.asked)) <= 3


def test_the_ends_can_not_be_contradicted():
    search = Search(5)
    with pytest.raises(ValueError, match="candidate 0 is known to be good"):
        search.record(0, BAD)
    with pytest.raises(ValueError, match="candidate 4 is known to be bad"):
        search.record(4, UNCLEAR)
    with pytest.raises(ValueError, match="candidate 5 does not exist; expected 0 to 4"):
        search.record(5, GOOD)
    with pytest.raises(ValueError, match="at least 2 candidates, got 1"):
        Search(1)


def test_neighbours_need_no_question():
    found = locate(2, Oracle([GOOD, BAD]))
    assert (found.last_good, found.first_bad, found.suspects) == (0, 1, ())
