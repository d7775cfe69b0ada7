"""No output names a winner if the interval contains 1 or is of one process."""

import copy
import datetime
import re

import pytest
from report_support import document, metrics, read, record
from results_support import decoded, latencies

from comparative_benchmark.analysis.stats.analysis import MIN_PROCESSES, Interval
from comparative_benchmark.interop.userbenchmarks import evidence
from comparative_benchmark.reporting.history.output import print_records
from comparative_benchmark.reporting.report import page, wording, writing
from comparative_benchmark.reporting.report.summary import summarize
from comparative_benchmark.results.case import cases_of
from comparative_benchmark.results.comparing.compare import (
    compare_documents,
    compare_to_baseline,
    summarize_comparisons,
)
from comparative_benchmark.terminal.compare_views import as_markdown, summary_line
from comparative_benchmark.terminal.console import Console

EAGER, XLA, IREE = "pt_inductor:eager", "jax_xla:xla", "iree:llvm-cpu"
# Scale of the latency, and processes of each side.
NIGHT = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
UNDECIDED = {"equals": (0.9995, 4), "one process": (0.5, 1), "two processes": (0.5, 2)}


def pair(scale, processes, competitor=XLA):
    """A results document of a baseline and another competitor."""
    made = [
        record("w1", name, metrics=metrics(size, seed=seed, processes=processes))
        for seed, (name, size) in enumerate({EAGER: 1.0, competitor: scale}.items())
    ]
    return document(*made)


def page_headline(summary):
    """The text of the first card of the page."""
    made = page.render(summary, title="T", made=NIGHT)
    card = made[made.index('id="h-wins"') :]
    return re.sub(r"<[^>]*>", "", card[: card.index("</section>")])


def table(found, capsys):
    Console().results(cases_of(decoded(found)), baseline=EAGER)
    return capsys.readouterr().out


def both_comparisons(found):
    """The competitors of a document compared; and the second as if it were the first, later."""
    old, new = copy.deepcopy(found), copy.deepcopy(found)
    del old["benchmarks"][1], new["benchmarks"][0]
    new["benchmarks"][0]["definition"] = old["benchmarks"][0]["definition"]
    yield compare_to_baseline(cases_of(decoded(found)), EAGER)
    yield compare_documents(decoded(old), decoded(new))


@pytest.mark.parametrize("name", UNDECIDED)
def test_the_report_names_no_winner(name):
    summary = summarize(read(pair(*UNDECIDED[name])))
    headline = writing.as_markdown(summary, title="T").splitlines()[2]
    for text in (headline, page_headline(summary)):
        assert "No winner: no competitor is clearly faster than" in text
        assert "as fast as" not in text
    (contest,) = summary.contests
    assert contest.winner is None
    assert [standing.mean.side for standing in contest.ranked] == ["even"]


@pytest.mark.parametrize("name", UNDECIDED)
def test_tables_and_comparisons_give_no_verdict(name, capsys):
    found = pair(*UNDECIDED[name])
    for items in both_comparisons(found):
        summary = summarize_comparisons(items)
        for text in (summary_line(summary), as_markdown(items, summary)):
            assert not re.search("faster|slower", text)
        assert not summary.faster
    assert not re.search("faster|slower", table(found, capsys))


def test_all_of_them_name_one_where_there_is_one(capsys):
    found = pair(0.5, 4)
    summary = summarize(read(found))
    assert "is 2.0" in page_headline(summary)
    assert "**`jax_xla:xla` (jax) is 2.0" in writing.as_markdown(summary, title="T")
    assert "1 faster" in table(found, capsys)
    for items in both_comparisons(found):
        assert "1 faster" in as_markdown(items, summarize_comparisons(items))


def test_an_interval_of_one_process_is_called_so_wherever_it_stands(capsys):
    found = pair(0.5, 1)
    summary = summarize(read(found))
    texts = [
        page_headline(summary),
        writing.as_markdown(summary, title="T"),
        table(found, capsys),
        as_markdown(
            items := compare_to_baseline(cases_of(decoded(found)), EAGER),
            summarize_comparisons(items),
        ),
    ]
    assert [text for text in texts if "within one process" not in text] == []
    with_more = table(pair(0.5, MIN_PROCESSES), capsys)
    assert "within one process" not in with_more


def test_who_is_clearly_faster_wins_though_another_has_a_higher_mean():
    noisy = [copy.deepcopy(metrics(scale)["processes"][0]) for scale in (0.1, 0.5, 1.4)]
    found = document(
        record("w1", EAGER, metrics=metrics(1.0, seed=1, race=None)),
        record("w1", XLA, metrics=metrics(0.7, seed=2, race=None)),
        record("w1", IREE, metrics={**metrics(1.0, race=None), "processes": noisy}),
    )
    summary = summarize(read(found))
    (contest,) = summary.contests
    assert contest.standings[0].competitor == IREE
    assert contest.winner.competitor == XLA
    assert [standing.competitor for standing in contest.rivals] == [IREE]
    assert "overlaps the interval of iree:llvm-cpu (jax)" in page_headline(summary)
    assert "overlaps the interval of iree:llvm-cpu (jax)" in writing.as_markdown(summary, title="T")


def test_the_baseline_wins_only_if_all_are_clearly_slower():
    slower = summarize(read(pair(1.5, 4)))
    assert "the baseline: no competitor is faster" in page_headline(slower)
    doubtful = summarize(read(pair(1.5, 1)))
    assert "No winner" in page_headline(doubtful)
    assert doubtful.contests[0].winner is None


def test_a_change_of_the_mean_stands_with_its_interval():
    change = Interval(estimate=1.02, low=0.99, high=1.05, level=0.98, processes=3)
    text = wording.change(change)
    assert text == "+2.0 % (98 % interval \N{MINUS SIGN}1.0 % to +5.0 %)"
    alone = Interval(estimate=1.02, low=0.99, high=1.05, level=0.98, processes=1)
    assert "within one process" in wording.change(alone)
    absurd = Interval(estimate=1.02, low=1e-20, high=1e20, level=0.98, processes=2)
    assert wording.change(absurd) == "+2.0 % (no interval)"


def test_the_history_calls_an_interval_of_one_process_so(capsys):
    from rich.console import Console as RichConsole

    usual = {"compile_ms": None, "host_memory_mb": None, "error": None, "status": "ok"}
    names = dict.fromkeys(("workload", "framework", "device", "backend", "compiler"), "x")
    shown = {**usual, **names, "environment": "", "options": [], "latency_ms": 1.0}
    limits = {"latency_low_ms": 0.9, "latency_high_ms": 1.1}
    rows = [{**shown, **limits, "time": NIGHT, "processes": count} for count in (1, 3)]
    print_records(rows, RichConsole(width=200))
    first, second = [line for line in capsys.readouterr().out.splitlines() if "0.900" in line]
    assert "(0.900 to 1.10 within one process)" in first
    assert "(0.900 to 1.10)" in second


def test_the_userbenchmark_reports_no_change_of_one_process(two_nights):
    control, treatment = two_nights(1.0), two_nights(3.0)
    assert latencies(evidence.run(control, treatment))
    for side in (control, treatment):
        for result in side["common_benchmark_suite"]["results"]:
            result["samples_ms"] = result.get("samples_ms", [])[:1]
    assert latencies(evidence.run(control, treatment)) == []
