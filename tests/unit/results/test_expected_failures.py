"""Known failures: results that an entry excuses, and results that it does not."""

import datetime

import pytest

from comparative_benchmark.results import expected_failures
from comparative_benchmark.results.expected_failures import (
    Ending,
    ExpectedFailuresError,
    judge,
    load,
)

TODAY = datetime.date(2026, 6, 15)
ENTRY = """
[[expected]]
name = 'models/TOY_NAN/.+'
competitor = 'test_numpy:direct'
device = 'host-cpu'
status = "wrong_output"
reason = "the toy divides by zero"
link = "https://example.org/issues/1"
expires = 2026-06-15
"""


@pytest.fixture
def write(tmp_path):
    def write_it(text):
        path = tmp_path / "known.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_it


def ending(status="wrong_output", **changes):
    fields = {
        "case_name": "models/TOY_NAN/inputs/X",
        "competitor": "test_numpy:direct",
        "device": "host-cpu",
        "status": status,
    }
    return Ending(**{**fields, **changes})


def test_the_checked_in_list_is_sound_and_holds_no_entry_that_has_expired():
    today = datetime.datetime.now(datetime.UTC).date()
    expired = [str(entry) for entry in load() if entry.expires < today]
    assert expired == []


def test_a_failure_that_is_as_expected_is_excused_until_its_last_day(write):
    [entry] = load(write(ENTRY))
    found = judge([entry], [ending()], today=TODAY)
    assert found.expected == {ending(): entry}
    assert not found.stale
    assert found.complaints() == []


def test_an_entry_that_has_expired_excuses_nothing_and_is_named(write):
    [entry] = load(write(ENTRY))
    found = judge([entry], [ending()], today=TODAY + datetime.timedelta(days=1))
    assert found.expected == {}
    assert found.stale
    [complaint] = found.complaints()
    for words in ("2026-06-15", "TOY_NAN", "divides by zero", "https://example.org/issues/1"):
        assert words in complaint


def test_an_entry_that_has_expired_for_what_is_not_run_is_no_matter_of_this_run(write):
    [entry] = load(write(ENTRY))
    other = ending(case_name="models/TOY_NONE/inputs/X")
    assert not judge([entry], [other], today=TODAY + datetime.timedelta(days=1)).stale


def test_another_failure_is_not_excused(write):
    [entry] = load(write(ENTRY))
    found = judge([entry], [ending("crashed")], today=TODAY)
    assert found.expected == {}
    assert not found.stale


def test_a_pass_is_reported(write):
    [entry] = load(write(ENTRY))
    found = judge([entry], [ending("ok")], today=TODAY)
    assert found.stale
    [complaint] = found.complaints()
    assert "unexpected pass" in complaint
    assert "models/TOY_NAN/inputs/X" in complaint


def test_what_is_unsupported_is_neither_a_pass_nor_a_failure(write):
    [entry] = load(write(ENTRY))
    found = judge([entry], [ending("unsupported")], today=TODAY)
    assert found.expected == {}
    assert not found.stale


@pytest.mark.parametrize(
    "changes",
    [
        {"case_name": "models/TOY_NAN_2/inputs/X"},
        {"case_name": "xmodels/TOY_NAN/inputs/X"},
        {"competitor": "test_numpy:direct+fast"},
        {"device": "host-cpu-2"},
    ],
)
def test_patterns_must_match_the_whole_text(write, changes):
    found = judge(load(write(ENTRY)), [ending(**changes)], today=TODAY)
    assert found.expected == {}


def test_an_environment_of_a_race_does_not_matter(write):
    found = judge(load(write(ENTRY)), [ending(competitor="test_numpy:direct@old")], today=TODAY)
    assert len(found.expected) == 1


def test_a_pass_near_the_limit_is_not_told_and_a_failure_is_expected(write):
    entries = load(write(ENTRY + "may_pass = true\n"))
    assert not judge(entries, [ending("ok")], today=TODAY).stale
    assert len(judge(entries, [ending()], today=TODAY).expected) == 1
    assert judge(load(write(ENTRY)), [ending("ok")], today=TODAY).stale


def test_of_several_entries_the_one_with_the_status_counts(write):
    other = ENTRY.replace('"wrong_output"', '"crashed"').replace("divides by zero", "forks")
    entries = load(write(ENTRY + other))
    found = judge(entries, [ending("crashed")], today=TODAY)
    assert [entry.reason for entry in found.expected.values()] == ["the toy forks"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('link = "https://example.org/issues/1"', "", ["missing link"]),
        ('link = "https://example.org/issues/1"', 'link = "see mail"', ["'see mail'"]),
        ("status", "stauts", ["missing status"]),
        ("[[expected]]", "[[expected]]\ncolour = 1", ["colour", "expected"]),
        ('"wrong_output"', '"ok"', ["'ok'", "wrong_output, failed"]),
        ('"wrong_output"', '"unsupported"', ["'unsupported'"]),
        ("'host-cpu'", "'host-('", ["device 'host-('", "not a regular expression"]),
        ("'host-cpu'", "7", ["device", "7"]),
        ("'host-cpu'", "' '", ["device"]),
        ("2026-06-15", '"soon"', ["expires", "'soon'", "2027-03-31"]),
        ("2026-06-15", "2026-06-15T12:00:00", ["expires"]),
        ("[[expected]]", '[[expected]]\nmay_pass = "yes"', ["may_pass", "'yes'"]),
        ("[[expected]]", "[[expcted]]", ["expcted"]),
        ("[[expected]]", "[expected]", ["[[expected]]"]),
        ("[[expected]]", "[[expected]", ["not TOML"]),
    ],
)
def test_a_malformed_list_names_the_file_and_the_fault(write, old, new, words):
    path = write(ENTRY.replace(old, new, 1))
    with pytest.raises(ExpectedFailuresError) as caught:
        load(path)
    for word in (str(path), *words):
        assert word in str(caught.value)


def test_a_malformed_entry_is_named_by_its_number(write):
    with pytest.raises(ExpectedFailuresError, match="entry 2: missing expires"):
        load(write(ENTRY + ENTRY.replace("expires = 2026-06-15", "")))


def test_a_list_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(ExpectedFailuresError, match=r"none\.toml cannot be read"):
        load(tmp_path / "none.toml")


def test_the_example_in_the_checked_in_list_is_one(write):
    text = expected_failures.EXPECTED_FAILURES_FILE.read_text(encoding="utf-8")
    start = text.index("# [[expected]]")
    end = text.index("\n", text.index("# expires"))
    example = "\n".join(line.removeprefix("# ") for line in text[start:end].splitlines())
    [entry] = load(write(example))
    assert entry.status == "wrong_output"
