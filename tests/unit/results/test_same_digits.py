"""One analysis: the same samples have the same figures wherever they are shown."""

import ast
from pathlib import Path

import pytest
import report_support
import rich.console
from results_support import completed
from test_compare import compare_documents, compare_to_baseline, document, metrics, record

from comparative_benchmark.analysis.stats.analysis import (
    latency_interval,
    mean_ratio,
    paired_ratio,
    unpaired_ratio,
)
from comparative_benchmark.reporting.report.standings import judge
from comparative_benchmark.results.case import cases_of
from comparative_benchmark.results.comparing.compare import summarize_comparisons
from comparative_benchmark.results.comparing.comparison import process_samples
from comparative_benchmark.terminal.compare_views import latency_text, speedup_text, summary_line
from comparative_benchmark.terminal.tables import results_table

PRODUCT = Path(__file__).parents[3] / "comparative_benchmark"
EAGER, XLA = "pt_inductor:eager", "jax_xla:xla"


def race():
    """Two competitors of one race that are 10 % apart, and have gone through the same drift."""
    drift = [1 + 0.05 * (number % 3) for number in range(10)]
    levels = [
        metrics(seed, scale=scale, race="id", drift=drift) for seed, scale in ((1, 2.0), (2, 2.2))
    ]
    return [
        record("w1", name, level=level) for name, level in zip((EAGER, XLA), levels, strict=True)
    ]


@pytest.fixture
def cases():
    return cases_of(completed({"benchmarks": race()}))


def text_of(table):
    console = rich.console.Console(width=300)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_latencies_of_compare_are_those_of_the_analysis(cases):
    (found,) = compare_to_baseline(race(), EAGER)
    samples = [process_samples(case.metrics) for case in cases]
    assert found.baseline_ms == latency_interval(samples[0])
    assert found.candidate_ms == latency_interval(samples[1])
    # Two files of the same results.
    (apart,) = compare_documents(document(race()[1]), document(race()[1]))
    assert apart.baseline_ms == apart.candidate_ms == found.candidate_ms


def test_ratios_of_compare_are_those_of_the_analysis(cases):
    (found,) = compare_to_baseline(race(), EAGER)
    blocks = [[process.blocks for process in case.metrics.processes] for case in cases]
    rounds = [
        [
            (sorted(new.latencies_ms)[2], sorted(old.latencies_ms)[2])
            for old, new in zip(*sides, strict=True)
        ]
        for sides in zip(*blocks, strict=True)
    ]
    assert found.paired
    assert found.log_ratio == paired_ratio(rounds)
    assert found.ratio == found.log_ratio.interval() == mean_ratio([[found.log_ratio]])
    assert found.p_value == found.log_ratio.p_value
    apart = [record("w1", level=metrics(seed)) for seed in (1, 2)]
    (of_files,) = compare_documents(*map(document, apart))
    sides = [
        process_samples(case.metrics)
        for side in apart
        for case in cases_of(completed({"benchmarks": [side]}))
    ]
    assert not of_files.paired
    assert of_files.log_ratio == unpaired_ratio(sides[1], sides[0])


def test_the_table_of_a_run_has_the_digits_of_compare(cases):
    (found,) = compare_to_baseline(race(), EAGER)
    shown = text_of(results_table(cases, baseline=EAGER).table)
    for text in map(latency_text, (found.baseline_ms, found.candidate_ms)):
        assert text in shown
    assert speedup_text(found.ratio) in shown
    summary = summarize_comparisons([found])
    assert summary.geomean_interval == found.ratio
    assert summary_line(summary).startswith(
        f"speed-up {speedup_text(found.ratio)}, geomean over 1 of 1"
    )


def test_the_report_has_the_digits_of_compare():
    (found,) = compare_to_baseline(race(), EAGER)
    results = report_support.read(report_support.document(*race(), runs=[report_support.run()]))
    judged = {item.case.competitor: item for item in judge(results.cases, EAGER)}
    assert judged[EAGER].interval == found.baseline_ms
    assert judged[XLA].interval == found.candidate_ms
    assert judged[XLA].comparison.ratio == found.ratio
    assert judged[XLA].comparison.p_value == found.p_value


@pytest.mark.slow
def test_only_the_statistics_know_students_t():
    own = []
    for path in PRODUCT.rglob("*.py"):
        names = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom | ast.Import)
            for alias in node.names
        }
        if names & {"student_quantile", "student_tail", "NormalDist", "scipy"}:
            own.append(path.parent.relative_to(PRODUCT).as_posix())
    assert set(own) == {"analysis/stats"}
