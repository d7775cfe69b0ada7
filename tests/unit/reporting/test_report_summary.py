"""The summary: winners, failures, changes, and whether the machine was fit."""

import json
import math

import pytest
from report_support import HOST, document, metrics, read, record, run, usual
from results_support import decoded

from comparative_benchmark.analysis.stats.analysis import (
    Interval,
    LogRatio,
    Verdict,
    ratio_quantile,
    verdict,
)
from comparative_benchmark.errors import UsageError
from comparative_benchmark.reporting.report import columns, standings, summary
from comparative_benchmark.reporting.report.details import environment_diff
from comparative_benchmark.reporting.report.summary import summarize
from comparative_benchmark.results.comparing.compare import compare_to_baseline
from comparative_benchmark.results.comparing.comparison import Comparison, Fate
from comparative_benchmark.results.results_file import ResultsFileError

pytestmark = pytest.mark.slow

EAGER = "pt_inductor:eager"


def by_name(contest):
    return {standing.name: standing for standing in contest.standings}


def test_speed_ups_are_over_the_workloads_that_all_have():
    (contest,) = summarize(read(usual())).contests
    assert (contest.common_cases, contest.cases) == (2, 3)
    found = by_name(contest)
    # w1: 2 / 1, w2: 2 / 0.5.
    assert found["jax_xla:xla (jax)"].common.estimate == pytest.approx(math.sqrt(8), rel=0.01)
    assert found["jax_xla:xla (jax)"].common.latency_ms == pytest.approx(math.sqrt(0.5), rel=0.01)
    assert found["iree:llvm-cpu (jax)"].common.estimate == pytest.approx(math.sqrt(0.5), rel=0.01)
    assert [standing.name for standing in contest.standings] == [
        "jax_xla:xla (jax)",
        "pt_inductor:eager (pytorch)",
        "iree:llvm-cpu (jax)",
    ]
    assert contest.winner.competitor == "jax_xla:xla"


def test_what_is_wrong_has_no_speed_and_what_is_unsupported_is_not_counted():
    (contest,) = summarize(read(usual())).contests
    found = by_name(contest)
    assert found["jax_xla:xla (jax)"].cases == 3
    assert found["jax_xla:xla (jax)"].own.cases == 2
    assert found["iree:llvm-cpu (jax)"].cases == 2


def test_who_supports_nothing_stands_nowhere():
    absent = record("w1", "openvino:latency", status="unsupported")
    (contest,) = summarize(read(document(record("w1", EAGER), absent))).contests
    assert [standing.competitor for standing in contest.standings] == [EAGER]
    assert contest.cases == 1


def test_where_nobody_is_faster_the_baseline_leads():
    slow = document(record("w1", EAGER), record("w1", "iree:llvm-cpu", scale=3.0))
    (contest,) = summarize(read(slow)).contests
    assert contest.winner.is_baseline
    alone = summarize(read(document(record("w1", EAGER)))).contests
    assert [(contest.winner, contest.ranked) for contest in alone] == [(None, [])]


def test_who_ran_few_cases_is_not_ranked_and_takes_none_from_the_others():
    records = [record(f"w{n}", EAGER, scale=2.0) for n in range(5)]
    records += [record(f"w{n}", "jax_xla:xla") for n in range(5)]
    records += [record("w0", "iree:llvm-cpu", scale=0.1)]
    (contest,) = summarize(read(document(*records))).contests
    found = by_name(contest)
    assert contest.common_cases == 5
    assert found["iree:llvm-cpu (jax)"].common is None
    assert found["iree:llvm-cpu (jax)"].own.cases == 1
    assert contest.standings[-1].competitor == "iree:llvm-cpu"


def comparison(estimate, *, latency_ms=3.0, processes=6, **fields):
    terms = (0.01, -0.02, 0.01, 0.0, 0.0, 0.0)[:processes]
    ratio = LogRatio(estimate=math.log(estimate), shared=terms, processes=processes)
    same = {"estimate": latency_ms, "low": latency_ms, "high": latency_ms, "level": 0.95}
    outcome, reason = verdict(ratio.interval())
    identity = dict.fromkeys(("workload", "label", "competitor", "framework", "device"), "?")
    known = {
        "fate": Fate.COMPARED,
        "verdict": outcome,
        "reason": reason,
        "ratio": ratio.interval(),
        "log_ratio": ratio,
        "candidate_ms": Interval(**same, processes=processes),
    }
    return Comparison(**identity, **{**known, **fields})


def test_the_mean_has_the_interval_of_its_cases():
    half = comparison(0.5, processes=3)
    one, interval = standings.geomean([half]), half.ratio
    assert (one.estimate, one.low, one.high) == pytest.approx(
        (2.0, 1 / interval.high, 1 / interval.low)
    )
    # Independent cases: half of the error, and four times the degrees of freedom.
    four = standings.geomean([half] * 4)
    error = math.sqrt(half.log_ratio.spread[0]) / 2
    assert math.log(four.high / 2) == pytest.approx(ratio_quantile(0.98, 8.0) * error)
    assert math.log(2 / four.low) == pytest.approx(ratio_quantile(0.98, 8.0) * error)
    assert four.limits == (four.low, four.high)
    assert four.latency_ms == pytest.approx(3.0)
    assert standings.geomean([]) is None


def test_a_mean_must_be_clear_among_all_pairs_of_competitors():
    found = [comparison(0.9), comparison(0.9)]
    assert standings.geomean(found, competitors=2).side == "ahead"
    many = standings.geomean(found, competitors=90)
    assert many.side == "even"
    assert many.doubt == "the difference is not significant among all pairs of competitors"
    assert many.limits[0] < many.low < many.high < many.limits[1]


def test_the_mean_of_one_case_is_as_clear_as_its_verdict():
    found = comparison(0.5, verdict=Verdict.UNCLEAR, reason="may be chance")
    assert standings.geomean([found]).doubt == "may be chance"


@pytest.mark.parametrize(("disturbed", "side"), [(1, "even"), (0, "ahead")])
def test_disturbed_cases_make_no_winner(disturbed, side):
    found = [comparison(0.5)] * 9 + [comparison(0.5, disturbed=True)] * disturbed
    mean = standings.geomean(found)
    assert mean.side == side
    assert mean.doubt == ("disturbances in 1 of 10 cases" if disturbed else "")


def test_the_page_marks_cases_that_means_leave_out_or_doubt():
    recipe = comparison(0.5, arithmetic="int8wo vs fp32", disturbed=True)
    shown = [columns._comparison(item, columns.Tables()) for item in (comparison(0.5), recipe)]
    assert [(item["arithmetic"], item["disturbed"]) for item in shown] == [(None, None), (1, 1)]


def test_ratios_are_those_of_the_tables():
    found = {
        (item.case.label, item.case.competitor): item.comparison
        for item in standings.judge(read(usual()).cases, EAGER)
    }
    for comparison in compare_to_baseline(read(usual()).cases, EAGER):
        key = (comparison.label, comparison.competitor)
        if comparison.ratio:
            assert found[key].ratio == comparison.ratio
            assert found[key].verdict is comparison.verdict
            assert found[key].paired


def test_several_processes_find_the_same():
    cases = read(usual()).cases
    assert standings.judge(cases, EAGER, processes=2) == standings.judge(cases, EAGER, processes=1)


def test_machines_are_never_compared():
    other = run("other", host={**HOST, "cpu_model": "Another CPU"})
    here = document(record("w1", EAGER, scale=2.0))
    there = document(record("w1", "jax_xla:xla", run_id="other"), runs=[other])
    summary = summarize(read(here, there))
    assert len(summary.contests) == 2
    assert all(not contest.ranked for contest in summary.contests)


def test_a_baseline_that_nobody_ran_is_refused_with_what_there_is():
    with pytest.raises(UsageError, match="iree:llvm-cpu, jax_xla:xla, pt_inductor:eager"):
        summarize(read(usual()), against="no:such")
    others = [record(name, "jax_xla:xla") for name in ("w1", "w2")]
    without = document(*others, record("w1", "iree:llvm-cpu"))
    assert summarize(read(without)).baseline == "jax_xla:xla"


def test_broken_results_come_worst_first_and_unsupported_is_not_broken():
    records = [record(f"w{n}", status=s) for n, s in enumerate(("timeout", "crashed", "ok"))]
    records += [record("w8", status="wrong_output"), record("w9", status="unsupported")]
    summary = summarize(read(document(*records)))
    assert [case.status.value for case in summary.broken] == ["wrong_output", "crashed", "timeout"]
    assert summary.statuses["unsupported"] == 1


def test_levels_and_frozen_weights_are_reported():
    frozen = record("w1", "iree:llvm-cpu", metrics={"program": {"weights": "frozen"}})
    summary = summarize(read(document(*usual()["benchmarks"][:2], frozen)))
    assert any(
        "Frozen weights" in remark and "iree:llvm-cpu" in remark for remark in summary.remarks
    )
    assert any("Compiler-level" in remark for remark in summarize(read(usual())).remarks)
    plain = summarize(read(document(*usual()["benchmarks"][:2])))
    assert not plain.remarks


def old_and_new(tmp_path, *, before=1.0, after=1.0, status="ok"):
    path = tmp_path / "old.json"
    records = [record(w, scale=before, metrics={"race": {}}) for w in ("w1", "w2")]
    path.write_text(json.dumps(document(*records, runs=[run(day=1)])))
    new = record("w1", scale=after, status=status, metrics={"race": {}}, run_id="new")
    return path, read(document(new, runs=[run("new", day=9)]))


def test_changes_are_those_of_cbs_compare(tmp_path):
    path, found = old_and_new(tmp_path, after=1.4)
    changes = summarize(found, baseline_file=path).changes
    (slower,) = changes.slower
    assert slower.percent == pytest.approx(40, abs=1)
    assert slower.result_id == found.cases[0].id
    assert slower.comparison.verdict is Verdict.SLOWER
    (missing,) = changes.missing
    assert missing.comparison.label == "label-w2"
    assert missing.result_id is None
    path, found = old_and_new(tmp_path, status="wrong_output")
    assert [c.result_id for c in summarize(found, baseline_file=path).changes.wrong] == [
        found.cases[0].id
    ]
    path, found = old_and_new(tmp_path, after=0.5)
    assert len(summarize(found, baseline_file=path).changes.faster) == 1


def test_drift_between_the_files_is_a_finding_of_the_machine(tmp_path):
    path, found = old_and_new(tmp_path)
    summary = summarize(found, baseline_file=path)
    assert any("days" in finding.text for finding in summary.fitness.findings)
    with pytest.raises(ResultsFileError, match="does not exist"):
        summarize(found, baseline_file=tmp_path / "none.json")


def levels(document_):
    found = summary.judge_machine(read(document_))
    return found, {finding.level for finding in found.findings}


def test_a_fit_machine_is_fit():
    found, seen = levels(document(record("w1", EAGER), record("w1")))
    assert seen == {"good"}
    assert found.headline == "Suitable"


@pytest.mark.parametrize(
    ("changes", "host", "level", "text"),
    [
        ({"contention": {"contended": True, "reasons": ["a build"]}}, {}, "bad", "a build"),
        ({"contention": {"contended": None}}, {}, "unknown", "disturbance data is missing"),
        ({"stop_reason": "fixed"}, {}, "doubtful", "fixed number"),
        ({"processes": metrics(processes=2)["processes"]}, {}, "doubtful", "fewer than 3"),
        ({}, {"governor": "powersave"}, "doubtful", "powersave"),
        ({}, {"governor": None}, "unknown", "does not report"),
        ({}, {"load_average": [3.2, 1, 1]}, "doubtful", "load average before a run: 3.2"),
    ],
)
def test_each_condition_is_reported(changes, host, level, text):
    made = document(record(metrics=changes), runs=[run(host={**HOST, **host})])
    found, _ = levels(made)
    assert (found.level, text in found.findings[0].text) == (level, True)


def test_one_disturbed_trial_of_many_is_a_doubt():
    records = [record(f"w{n}") for n in range(20)]
    disturbed = {"contention": {"contended": True, "reasons": ["a build"]}}
    found, _ = levels(document(*records, record("x", metrics=disturbed)))
    assert found.level == "doubtful"


def runs_of(runs):
    return decoded(document(runs=list(runs))).runs


def test_environments_show_only_what_differs():
    runs = runs_of(
        run(f"r{n}", day=n + 1, packages={"jax": f"0.{n}", "flax": "1"}) for n in range(3)
    )
    found = environment_diff(runs[1:], runs[:1])
    assert found.rows == [("package: jax", ["0.0", "0.1", "0.2"])]
    assert found.runs[0].startswith("baseline 2026-11-01")
    assert found.left_out == 0
    many = environment_diff(runs_of(run(f"r{n}", packages={"jax": str(n)}) for n in range(20)))
    assert (len(many.runs), many.left_out) == (8, 12)
    assert not environment_diff(runs[:1]).rows


def test_a_judged_result_holds_its_interval_without_a_baseline():
    (item,) = standings.judge(read(document(record(scale=3.0))).cases, EAGER)
    assert item.interval.estimate == pytest.approx(3.0, rel=0.01)
    assert item.comparison.ratio is None
