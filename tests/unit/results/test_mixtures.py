"""Remarks on competitors of one table with different settings."""

import numpy as np
import pytest
from results_support import completed, metrics, record

from comparative_benchmark.results.case import cases_of
from comparative_benchmark.results.comparing.compare_remarks import mixture_remarks


def cases(*records):
    return cases_of(completed({"benchmarks": list(records)}))


def made_by(competitor, status="ok", without=None, **program):
    level = {**(metrics() if status == "ok" else {}), "program": program}
    if without:
        level["without_second"] = without
    return record("w", competitor, status=status, level=level)


def test_alike_is_not_remarked():
    alike = {"weights": "arguments", "outputs": "allocated"}
    assert mixture_remarks(cases(made_by("jax_xla:xla", **alike), made_by("a:b", **alike))) == []
    # Old results lack the field; wrong results are in no ranking.
    wrong = made_by("openvino:latency", "wrong_output", weights="frozen", outputs="bound")
    assert mixture_remarks(cases(made_by("jax_xla:xla", **alike), made_by("a:b"), wrong)) == []


def test_who_writes_to_memory_that_is_there_is_named():
    [said] = mixture_remarks(
        cases(made_by("jax_xla:xla", outputs="allocated"), made_by("a:b", outputs="bound"))
    )
    assert said.startswith("Outputs written to preallocated memory: a:b (jax); the others")


def test_a_judge_that_is_not_built_in_is_named():
    def judged(competitor, **source):
        return record("w", competitor, level={**metrics(), "truth_source": source})

    ours = judged("a:b", backend="pt_inductor", distribution="suite", built_in=True)
    plugin = judged("c:d", backend="c", distribution="c-plugin", built_in=False)
    declared = judged("e:f", backend="", distribution="models", built_in=False)
    assert mixture_remarks(cases(ours, plugin, declared)) == [
        "Truth computed by the plug-in backend c (package c-plugin): c:d (jax).",
        "Truth computed by the reference in the model's definition (package models): e:f (jax).",
    ]


def test_who_was_verified_on_one_input_is_named_with_the_reason():
    said = mixture_remarks(
        cases(made_by("a:b", without="x"), made_by("c:d", without="x"), made_by("e:f"))
    )
    assert said == ["Verified on only one input: a:b (jax), c:d (jax) (x)."]


@pytest.mark.parametrize(("slowdown", "is_named"), [(1.5, False), (60.0, True)])
def test_a_slow_process_that_the_mean_includes_is_named(slowdown, is_named):
    level = metrics(processes=5)
    for block in level["processes"][3]["blocks"]:
        block["latencies_ms"] = [slowdown * value for value in block["latencies_ms"]]
    said = mixture_remarks(cases(record("w", "a:b", level=level)))
    expected = "a:b (jax): one of 5 processes took 60 times as long as the median process"
    assert [line.partition(", ")[0] for line in said] == [expected] * is_named


def fixed(latencies, competitor="a:b"):
    level = metrics(processes=1, rounds=1)
    level["processes"][0]["blocks"][0]["latencies_ms"] = latencies
    return cases(record("w", competitor, level={**level, "stop_reason": "fixed"}))


@pytest.mark.parametrize(
    ("latencies", "told"),
    [
        ([40.0] * 41 + [1.0] * 39, "40 ms in the first half and 1 ms in"),
        ([1.0 + 0.01 * number for number in range(100)], "1.25 ms in the first half and 1.75 ms"),
    ],
)
def test_a_fixed_number_of_iterations_that_changes_is_reported(latencies, told):
    [said] = mixture_remarks(fixed(latencies))
    assert said.startswith("a:b (jax) changed speed during the run: the median was")
    assert told in said


def test_several_processes_of_fixed_counts_or_none_are_read():
    several = metrics(processes=3) | {"stop_reason": "fixed"}
    none = metrics() | {"stop_reason": "fixed"}
    none.pop("processes")
    assert (
        mixture_remarks(
            cases(*(record(w, level=level) for w, level in (("v", several), ("w", none))))
        )
        == []
    )


def test_noise_of_a_fixed_number_of_iterations_is_not_told():
    random = np.random.default_rng(0)
    told = 0
    for count in (2, 10, 20, 100) * 50:
        spread = np.exp(0.1 * random.standard_t(3, count))
        told += bool(mixture_remarks(fixed(spread.tolist())))
    assert told <= 2


def compiled_by(competitor, misses):
    processes = [{"cold": True, "compile_ms": 5.0, "cache_misses": misses}]
    compiling = {"cold_ms": [5.0], "warm_ms": [], "processes": processes}
    level = {**metrics(), "compile": compiling, "compile_time_ms": 5.0}
    return record("w", competitor, level=level)


def test_whose_compile_time_includes_writing_a_cache_is_named_next_to_one_whose_does_not():
    assert mixture_remarks(cases(compiled_by("a:b", 1), compiled_by("c:d", 2))) == []
    [said] = mixture_remarks(cases(compiled_by("a:b", 1), compiled_by("c:d", None)))
    assert said == "Compile times that include writing a cache: a:b (jax); the others do not."


def test_a_truth_in_doubt_and_one_by_majority_are_remarked_once():
    difference = {"operator": "Resize", "node": "r", "routes": ["one", "other"], "error": 0.5}
    found = {"in_doubt": [difference], "outvoted": [difference | {"operator": "LRN"}]}
    level = {**metrics(), "truth_check": found}
    said = mixture_remarks(cases(*(record("w", name, level=level) for name in ("a:b", "c:d"))))
    doubt = (
        "one and other differ by 0.5 times the scale at Resize (r); no output is reported as wrong."
    )
    assert said[0].startswith("Truth for ")
    assert said[0].endswith(f" in doubt: {doubt}")
    assert "decided by two of three implementations: one and other differ by 0.5" in said[1]
    assert len(said) == 2
