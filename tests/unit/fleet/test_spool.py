"""The spool: claims, submissions, ends and results in a folder."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet.spool import (
    CLAIM_EXPIRES_S,
    Attempt,
    End,
    Spool,
    expired,
    read_batch,
)

KEY = "ab" + "0" * 30
FIRST = Attempt(KEY, 0)


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path / "spool")
    spool.create()
    return spool


def age(spool, attempt, seconds):
    [folder] = (spool.folder / "claims").glob(f"*/{attempt.name}")
    at = spool.now() - seconds
    os.utime(folder, (at, at))


def test_only_one_submitter_gets_a_claim(spool):
    assert spool.claim(FIRST)
    assert not Spool(spool.folder).claim(FIRST)
    assert spool.claim(Attempt(KEY, 1))
    assert spool.view().claimed == {KEY: 1}


def test_a_released_claim_is_free(spool):
    spool.claim(FIRST)
    spool.release([FIRST, Attempt(KEY, 5)])
    assert spool.view().claimed == {}
    assert spool.claimed_at(FIRST) == float("-inf")
    assert spool.claim(FIRST)


def test_a_young_claim_cannot_be_taken_over(spool):
    spool.claim(FIRST)
    assert not Spool(spool.folder).take_over(FIRST)


@pytest.mark.parametrize("seconds", [CLAIM_EXPIRES_S + 10, -CLAIM_EXPIRES_S - 10])
def test_an_expired_claim_is_taken_over_once(spool, seconds):
    spool.claim(FIRST)
    age(spool, FIRST, seconds)
    others = [Spool(spool.folder) for _ in range(3)]
    assert [other.take_over(FIRST) for other in others] == [True, False, False]
    assert abs(spool.claimed_at(FIRST) - spool.now()) < 60
    assert spool.view().claimed == {KEY: 0}
    age(spool, FIRST, seconds + 5)
    assert [other.take_over(FIRST) for other in others] == [True, False, False]


def test_a_claim_that_was_released_meanwhile_is_taken_over(spool):
    assert spool.take_over(FIRST)
    assert not spool.take_over(FIRST)


def test_submitters_append_to_lists_of_their_own(spool):
    other = Spool(spool.folder)
    for number, submitter in enumerate((spool, other, spool)):
        submitter.record_submission(f"b{number}", "7", [Attempt(KEY, number)])
    assert len(list((spool.folder / "submitted").iterdir())) == 2
    assert spool.view().batches == {f"{KEY}.{number}": f"b{number}" for number in range(3)}
    assert set(spool.view().submitted_at) == {"b0", "b1", "b2"}


@given(content=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_content_after_a_line_leaves_the_line(spool, content):
    record = Spool(spool.folder)
    record.record_submission("b", "7", [FIRST])
    path = spool.folder / "submitted" / f"{record.owner}.jsonl"
    path.write_bytes(path.read_bytes() + content)
    assert spool.view().batches[FIRST.name] == "b"
    path.unlink()


@given(content=st.binary(max_size=100))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_content_of_other_files_is_an_answer(spool, content):
    for name in (f"ends/{FIRST.name}.json", "durations.json", "batches/b.json"):
        (spool.folder / name).write_bytes(content)
    assert spool.read_end(FIRST.name) is None
    assert spool.durations_s() == {}
    with pytest.raises(UsageError, match="cannot be read"):
        read_batch(spool.batch_file("b"))


@pytest.mark.parametrize("value", ["-1.0", "0", "1e300", '"x"', "null"])
def test_durations_that_cannot_be(spool, value):
    (spool.folder / "durations.json").write_text(f'{{"a": 1.0, "b": {value}}}')
    assert spool.durations_s() == {}


def test_durations_are_kept(spool):
    spool.save_durations_s({"b": 2.0, "a": 1.5})
    assert spool.durations_s() == {"a": 1.5, "b": 2.0}


def test_an_attempt_ends_once(spool):
    end = End(ending="failed", reason="x", node="n", at=1.0, wall_s=2.0)
    assert spool.end(FIRST, end)
    assert not spool.end(FIRST, End(ending="done"))
    assert spool.read_end(FIRST.name) == end
    assert spool.view().ended == {FIRST.name}


def test_names_of_results(spool):
    results = spool.folder / "results"
    for name in (f"{KEY}.0.json", f"{KEY}.x.json", f"{KEY}.0.json.damaged", ".unfinished-1"):
        (results / name).touch()
    view = spool.view()
    assert view.finished == {FIRST.name}
    assert view.foreign == [f"results/{KEY}.x.json"]


def test_an_attempt_that_finishes_meanwhile_is_not_damaged(spool, monkeypatch):
    names_in = spool._names

    def finishing(folder):
        names = names_in(folder)
        if folder in ("results", "ends"):
            spool.result_file(FIRST.name).touch()
            spool.end(FIRST, End(ending="done"))
        return names

    monkeypatch.setattr(spool, "_names", finishing)
    view = spool.view()
    assert view.ended <= view.finished


def test_a_result_of_this_or_an_earlier_attempt(spool):
    spool.result_file(f"{KEY}.1").touch()
    assert [spool.has_result(Attempt(KEY, number)) for number in range(3)] == [False, True, True]
    spool.set_aside(f"{KEY}.1")
    spool.set_aside(f"{KEY}.1")
    assert not spool.has_result(Attempt(KEY, 2))


def test_an_empty_spool(tmp_path):
    view = Spool(tmp_path / "none").view()
    assert (view.claimed, view.batches, view.finished, view.ended) == ({}, {}, set(), set())


def test_a_folder_that_cannot_be_read(spool):
    (spool.folder / "ends").rmdir()
    (spool.folder / "ends").symlink_to("ends")
    with pytest.raises(UsageError, match="ends cannot be read"):
        spool.view()


def test_a_file_in_the_place_of_the_spool(tmp_path):
    (tmp_path / "spool").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        Spool(tmp_path / "spool").create()


@given(now=st.floats(0, 1e10), offset=st.floats(-1e9, 1e9))
def test_a_time_in_the_future_expires_as_well(now, offset):
    assert expired(now, now + offset, 10.0) == expired(now + offset, now, 10.0)
    assert expired(now, now + offset, 10.0) == (abs(now - (now + offset)) > 10.0)
