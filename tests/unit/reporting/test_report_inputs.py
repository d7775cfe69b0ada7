"""Inputs of a report, and its refusals."""

import json

import pytest
from report_support import document, read, record, run, usual

from comparative_benchmark.reporting.report import inputs
from comparative_benchmark.reporting.report.columns import DIGITS, STEPS, dots_per_case, thin
from comparative_benchmark.reporting.report.inputs import ReportError


def write(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_of_a_case_in_several_files_the_latest_counts_whatever_the_order():
    old = document(record(scale=2.0, run_id="old"), runs=[run("old", day=1)])
    new = document(record(scale=1.0, run_id="new"), runs=[run("new", day=2)])
    for order in ((old, new), (new, old)):
        found = read(*order)
        (case,) = found.cases
        assert case.result.run_id == "new"
        assert [[c.result.run_id for c in e] for e in found.earlier.values()] == [["old"]]
        assert [run.run_id for run in found.runs] == ["old", "new"]


def test_a_copy_in_another_file_is_no_second_measurement():
    found = read(document(record()), document(record()))
    assert len(found.cases) == 1
    assert not found.earlier


def test_two_machines_have_a_result_each():
    other = run("other", host={"cpu_model": "Another CPU", "threads": 2})
    found = read(document(record()), document(record(run_id="other"), runs=[other]))
    assert {case.machine for case in found.cases} == {"A CPU", "Another CPU"}
    assert len({case.id for case in found.cases}) == 2


def test_ids_are_the_same_in_every_report():
    first = {case.id for case in read(usual()).cases}
    again = read(document(record("w9")), usual())
    assert first < {case.id for case in again.cases}


def test_damaged_files_are_named_and_the_others_are_read(tmp_path):
    broken = document(record(), record("w2"))
    del broken["benchmarks"][1]["definition"]["backend"]
    paths = [
        write(tmp_path / "good.json", document(record())),
        write(tmp_path / "broken.json", broken),
        write(tmp_path / "torn.json", '{"runs": ['),
        write(tmp_path / "foreign.json", {"benchmarks": []}),
        tmp_path / "absent.json",
    ]
    found = inputs.read(paths)
    assert len(found.cases) == 1
    text = "\n".join(found.refused)
    for name in ("torn.json is not JSON", "foreign.json", "absent.json does not exist"):
        assert name in text
    assert "`backend` - at `$.benchmarks[1].definition`" in text


def test_nothing_to_read_is_an_error_that_gives_the_reason(tmp_path):
    with pytest.raises(ReportError, match=r"torn\.json is not JSON"):
        inputs.read([write(tmp_path / "torn.json", "{")])
    with pytest.raises(ReportError, match="no results"):
        inputs.read([write(tmp_path / "empty.json", document())])


def decoded(text, found):
    steps = [
        DIGITS.index(text[i]) * len(DIGITS) + DIGITS.index(text[i + 1])
        for i in range(0, len(text), 2)
    ]
    return [found.low_ms * (found.high_ms / found.low_ms) ** (step / STEPS) for step in steps]


def test_few_samples_are_all_drawn_where_they_are():
    samples = [[1.0, 2.0, 4.0], [8.0]]
    found = thin(samples, 200, "seed")
    assert (found.shown, found.samples) == (4, 4)
    for text, values in zip(found.processes, samples, strict=True):
        assert decoded(text, found) == pytest.approx(values, rel=1e-3)


def test_many_samples_are_thinned_by_the_seed_and_keep_their_extremes():
    samples = [[1.0 + 0.001 * n for n in range(1000)], [5.0 + 0.001 * n for n in range(500)]]
    found = thin(samples, 30, "seed")
    assert [len(text) // 2 for text in found.processes] == [20, 10]
    for text, values in zip(found.processes, samples, strict=True):
        dots = decoded(text, found)
        assert min(dots) == pytest.approx(min(values), rel=1e-3)
        assert max(dots) == pytest.approx(max(values), rel=1e-3)
        assert dots == sorted(dots)
    assert thin(samples, 30, "seed") == found
    assert thin(samples, 30, "another").processes != found.processes


def test_equal_samples():
    assert thin([[2.0, 2.0]], 10, "s").processes == ["AAAA"]


def test_a_page_of_many_cases_has_fewer_dots_for_each():
    assert dots_per_case(10) == dots_per_case(5_000) == 200
    assert dots_per_case(20_000) == 50
    assert dots_per_case(10**6) == 20
