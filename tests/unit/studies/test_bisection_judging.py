"""From two records of a race to good, bad, unclear or skipped."""

import attrs
import pytest
from results_support import completed

from comparative_benchmark.results.comparing.compare import compare_to_baseline
from comparative_benchmark.studies.bisection import racing
from comparative_benchmark.studies.bisection.racing import Metric, judge, sought_threshold
from comparative_benchmark.studies.bisection.search import Answer, CaseAnswer, Finding, Ratio

SPREAD = (1.0, 1.002, 0.999, 1.001, 0.9995, 1.0005)


def _record(name, *, ms=1.0, spread=SPREAD, status="ok", cold_ms=None, host_mb=100.0, **metrics):
    """A record of a race with six processes of ten rounds, and the given median latency."""
    processes = [
        {
            "blocks": [
                {"round": index, "latencies_ms": [ms * factor * (1 + 1e-4 * index)] * 2}
                for index in range(10)
            ],
            "host_memory_peak_mb": host_mb * factor if host_mb else None,
        }
        for factor in spread
    ]
    found = {
        "race": {"id": "r", "interleaved": True},
        "processes": processes,
        "host_memory_peak_mb": host_mb,
        **metrics,
    }
    if cold_ms is not None:
        found |= {"stop_reason": "compile_only", "compile": {"cold_ms": cold_ms, "warm_ms": []}}
    made = {
        "run_id": "run",
        "status": status,
        "phase": "verify",
        "reason": "rmse 3 > 1",
        "definition": {
            "benchmark_name": "models/TOY",
            "backend": "test_numpy",
            "compiler": "direct",
            "device": "host-cpu",
            "framework": "ModelFrameworkType.PYTORCH",
            "data_type": "fp32",
            "environment": {"name": name, "python": "python"},
            "workload": {"digest": "d", "label": "toy", "architecture": "toy"},
        },
        "metrics": {"framework_level": found},
    }
    [result] = completed({"benchmarks": [made]}).benchmarks
    return result


def _judged(metric=Metric.LATENCY, threshold=None, good=None, **candidate):
    return judge(_record("v1", **(good or {})), _record("v2", **candidate), metric, threshold)


def test_slower_is_bad_and_the_same_is_good():
    bad = _judged(ms=1.08)
    assert bad.answer is Answer.BAD
    assert bad.case == "models/TOY test_numpy:direct"
    assert bad.ratio.estimate == pytest.approx(1.08)
    assert _judged(ms=1.0).answer is Answer.GOOD
    assert _judged(ms=0.9).answer is Answer.GOOD


def test_noise_is_unclear():
    assert _judged(ms=1.03, spread=(1.0, 1.2, 0.85, 1.1)).answer is Answer.UNCLEAR


def test_a_verdict_that_others_disturbed_is_unclear(monkeypatch):
    def disturbed(*arguments, **options):
        [item] = compare_to_baseline(*arguments, **options)
        return [attrs.evolve(item.withhold("disturbed by others"), disturbed=True)]

    assert _judged(ms=1.0).answer is Answer.GOOD
    monkeypatch.setattr(racing, "compare_to_baseline", disturbed)
    found = _judged(ms=1.0)
    assert (found.answer, found.reason) == (Answer.UNCLEAR, "disturbed by others")


def test_a_smaller_change_than_the_one_that_is_sought_is_good():
    assert _judged(ms=1.02).answer is Answer.BAD
    small = _judged(ms=1.02, threshold=0.04)
    assert small.answer is Answer.GOOD
    assert _judged(ms=1.02, threshold=0.04, spread=(0.9, 1.1, 1.0, 1.2)).answer is Answer.UNCLEAR


def test_a_clear_gain_that_scatters_is_not_the_slow_down_that_is_sought():
    found = _judged(ms=0.95, threshold=0.04, spread=(1.0, 0.96, 0.98, 1.02))
    assert found.answer is Answer.GOOD


def test_half_of_the_smallest_change_at_the_bad_end_is_the_threshold():
    cases = [
        CaseAnswer(
            case=str(value),
            answer=Answer.BAD,
            reason="",
            ratio=Ratio(estimate=value, low=value, high=value),
        )
        for value in (1.5, 1.21)
    ]
    assert sought_threshold(cases, Metric.LATENCY.noise) == pytest.approx(0.1)
    tiny = Ratio(estimate=1.011, low=1, high=1.02)
    [case] = [CaseAnswer(case="x", answer=Answer.BAD, reason="", ratio=tiny)]
    assert sought_threshold([case], Metric.COMPILE.noise) == 0.05
    assert sought_threshold([], Metric.OUTPUT.noise) is None


def test_compile_times_are_compared_where_only_they_were_measured():
    good = {"cold_ms": [100.0, 101.0, 99.0, 100.0]}
    slow = _judged(Metric.COMPILE, good=good, cold_ms=[150.0, 151.0, 149.0, 150.0])
    assert slow.answer is Answer.BAD
    assert slow.ratio.estimate == pytest.approx(1.5, rel=0.01)
    close = _judged(Metric.COMPILE, good=good, cold_ms=[102.0, 101.0, 102.0, 101.5])
    assert close.answer is Answer.GOOD


def test_memory_of_the_host_is_compared_by_process():
    assert _judged(Metric.MEMORY, host_mb=130.0).answer is Answer.BAD
    assert _judged(Metric.MEMORY, host_mb=100.0).answer is Answer.GOOD
    assert _judged(Metric.MEMORY, host_mb=None).answer is Answer.SKIPPED


def test_memory_of_the_device_comes_first():
    good = {"device_memory_peak_mb": 50.0}
    assert _judged(Metric.MEMORY, good=good, device_memory_peak_mb=60.0).answer is Answer.BAD
    same = _judged(Metric.MEMORY, good=good, host_mb=500.0, device_memory_peak_mb=50.0)
    assert same.answer is Answer.GOOD


@pytest.mark.parametrize(
    ("metric", "status", "answer"),
    [
        (Metric.OUTPUT, "wrong_output", Answer.BAD),
        (Metric.OUTPUT, "ok", Answer.GOOD),
        (Metric.OUTPUT, "unsteady", Answer.GOOD),
        (Metric.OUTPUT, "crashed", Answer.SKIPPED),
        (Metric.OUTPUT, "unsupported", Answer.SKIPPED),
        (Metric.FAILURE, "wrong_output", Answer.BAD),
        (Metric.FAILURE, "crashed", Answer.BAD),
        (Metric.FAILURE, "timeout", Answer.BAD),
        (Metric.FAILURE, "unsupported", Answer.SKIPPED),
        (Metric.FAILURE, "ok", Answer.GOOD),
        (Metric.LATENCY, "wrong_output", Answer.SKIPPED),
        (Metric.LATENCY, "unsteady", Answer.SKIPPED),
    ],
)
def test_how_a_trial_ended_is_bad_only_where_that_is_looked_at(metric, status, answer):
    assert _judged(metric, status=status).answer is answer


@pytest.mark.parametrize("metric", Metric)
def test_a_good_end_that_is_not_good_judges_nobody(metric):
    found = _judged(metric, good={"status": "wrong_output"})
    assert found.answer is Answer.SKIPPED
    assert found.reason == "good end: wrong_output in verify: rmse 3 > 1"


@pytest.mark.parametrize(
    ("answers", "together"),
    [
        ("good good", Answer.GOOD),
        ("good bad unclear", Answer.BAD),
        ("good unclear skipped", Answer.UNCLEAR),
        ("good skipped", Answer.SKIPPED),
        ("skipped", Answer.SKIPPED),
    ],
)
def test_several_cases_are_bad_if_one_is_and_good_if_all_are(answers, together):
    cases = [
        CaseAnswer(case=str(index), answer=Answer(answer), reason="")
        for index, answer in enumerate(answers.split())
    ]
    assert Finding(cases=tuple(cases)).answer is together
