"""The appearance of a comparison."""

import json

import pytest
from results_support import metrics, record
from test_compare import compare_documents, document

from comparative_benchmark.analysis.stats.analysis import Interval
from comparative_benchmark.results.comparing.compare import summarize_comparisons
from comparative_benchmark.results.comparing.compare_remarks import Remarks
from comparative_benchmark.results.comparing.noise_floor import Noise, NoiseFloor
from comparative_benchmark.terminal.compare_views import (
    HEADINGS,
    as_json,
    as_markdown,
    latency_text,
    ratio_text,
    summary_line,
    table_rows,
)


@pytest.fixture
def comparisons():
    return compare_documents(
        document(record(), record("w2"), record("w3"), record("w4")),
        document(
            record(level=metrics(1, scale=1.1)),
            record("w2", status="wrong_output", competitor="jax_xla:xla"),
            record("w4", data_type="b|f"),
        ),
    )


def interval(estimate, low, high):
    return Interval(estimate=estimate, low=low, high=high, level=0.98, processes=5)


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ((0.912, 0.882, 0.948), "0.91 (0.88-0.95)"),
        ((0.912, 0.9106, 0.9133), "0.912 (0.911-0.913)"),
        ((1.03, 1.002, 1.06), "1.030 (1.002-1.060)"),
        ((0.96, 0.91, 0.998), "0.960 (0.910-0.998)"),
        ((2.4, 1.1, 5.2), "2.4 (1.1-5.2)"),
        ((1.071, 0.9999, 1.147), "1.07 (1.00-1.15)"),
        ((0.15, 0.003, 9.2), "0.1 (0.0-9.2)"),
        ((1.0, 1.0, 1.0), "1.000 (1.000-1.000)"),
        ((1.0, 1e-300, 1e300), "1.000 (no interval)"),
    ],
)
def test_a_ratio_has_the_digits_that_its_interval_supports(limits, text):
    assert ratio_text(interval(*limits)) == text


def test_a_latency_has_the_digits_that_its_interval_supports():
    assert latency_text(interval(1234.5, 1200.0, 1270.0)) == "1234 (1200-1270)"
    assert latency_text(interval(0.01234, 0.0122, 0.0125)) == "0.0123 (0.0122-0.0125)"
    assert latency_text(None) == ratio_text(None) == "-"


def test_limits_that_mean_nothing_are_not_printed():
    assert ratio_text(interval(1.0, 0.0, 3.8e26)) == "1.000 (no interval)"
    assert latency_text(interval(0.5, 1e-4, 40.0)) == "0.5000 (no interval)"


def test_rows_have_a_cell_for_each_heading(comparisons):
    rows = table_rows(comparisons)
    assert {len(row) for row in rows} == {len(HEADINGS)}
    assert rows[0][0] == "label-w1"
    assert rows[0][5] == "slower"


def test_p_is_shown_where_there_are_processes_enough_to_decide():
    few = metrics(1, scale=1.1, processes=2)
    pairs = [(metrics(), metrics(1, scale=1.1)), (metrics(processes=2), few)]
    shown = []
    for before, after in pairs:
        found = compare_documents(document(record(level=before)), document(record(level=after)))
        shown.append(table_rows(found)[0][HEADINGS.index("p")])
        value = json.loads(as_json(found, summarize_comparisons(found)))["comparisons"][0]
        assert (value["p_value"] is None) is (shown[-1] == "-")
    assert float(shown[0]) < 1e-6
    assert shown[1] == "-"


def test_remarks_are_in_json_and_end_the_markdown(comparisons):
    noise = Noise(pairs=2, programs=2, median_percent=0.5, p95_percent=1.0, largest_percent=1.0)
    beside = Remarks(
        noise_floor=NoiseFloor(machine="m", pooled=noise, competitors={"c": noise}),
        saved_noise_floor=None,
        withheld=1,
        drift="the machine may have changed",
    )
    summary = summarize_comparisons(comparisons)
    value = json.loads(as_json(comparisons, summary, beside))["remarks"]
    assert value["noise_floor"]["pooled"]["pairs"] == 2
    assert value["drift"] == "the machine may have changed"
    assert "remarks" not in json.loads(as_json(comparisons, summary))
    text = as_markdown(comparisons, summary, beside)
    assert text.endswith("\nthe machine may have changed\n")
    assert "noise floor: 2 unchanged programs differ by 0.5 % (median), 1.0 % (at most)" in text


def test_markdown_holds_the_verdicts_the_summary_and_every_reason(comparisons):
    text = as_markdown(comparisons, summarize_comparisons(comparisons))
    assert "speed-up 0.909 (0.908-0.910), geomean over 1 of 4 cases" in text
    assert "| slower |" in text
    assert "Wrong output, not ranked:\n- label-w2" in text
    assert "Missing:\n- label-w3" in text
    assert "different data types: fp32 and b\\|f" in text


def test_a_reason_stays_inside_its_cell(comparisons):
    lines = as_markdown(comparisons, summarize_comparisons(comparisons)).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 3
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1


def test_json_is_plain_json(comparisons):
    value = json.loads(as_json(comparisons, summarize_comparisons(comparisons)))
    assert value["comparisons"][0]["verdict"] == "slower"
    assert value["comparisons"][0]["ratio"]["level"] == 0.98
    assert value["summary"]["pass_rate"] == 0.25


def test_nothing_to_compare_is_said():
    summary = summarize_comparisons([])
    assert summary_line(summary) == "no case could be compared"
    assert as_markdown([], summary) == "**no case could be compared**\n"
    assert json.loads(as_json([], summary))["summary"]["geomean"] is None
