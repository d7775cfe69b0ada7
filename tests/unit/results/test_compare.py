"""Two results files against each other, and the competitors of one against a baseline."""

import math
import sys

import numpy as np
import pytest
from results_support import LATEST, completed, content_of, decoded, metrics, plain_document, record

from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.results.case import cases_of
from comparative_benchmark.results.comparing import compare
from comparative_benchmark.results.comparing.compare import (
    Comparison,
    Fate,
    exit_code,
    summarize_comparisons,
)
from comparative_benchmark.results.results_file import ResultsFileError, read_document
from comparative_benchmark.terminal.compare_views import summary_line


def compare_documents(old, new, **options):
    """Compares documents whose relevant fields a test gives."""
    return compare.compare_documents(completed(old), completed(new), **options)


def compare_to_baseline(records, baseline=compare.DEFAULT_BASELINE, **options):
    """Compares records with a baseline among them."""
    cases = cases_of(completed({"benchmarks": list(records)}))
    return compare.compare_to_baseline(cases, baseline, **options)


HOST = {"cpu_model": "A CPU", "threads": 2}


def document(*records, host=HOST):
    run = {"run_id": "r", "execution_environment": {"host": host}}
    return {"runs": [run], "benchmarks": list(records)}


def one(baseline, candidate) -> Comparison:
    (found,) = compare_documents(baseline, candidate)
    return found


def code(baseline, candidate) -> int:
    return exit_code(summarize_comparisons(compare_documents(baseline, candidate)))


def test_the_same_thing_twice_is_no_difference():
    found = one(document(record()), document(record(level=metrics(1))))
    assert found.verdict in (Verdict.SAME, Verdict.UNCLEAR)
    assert found.ratio.low < 1 < found.ratio.high
    assert found.baseline_ms.estimate == pytest.approx(1, rel=0.01)
    assert code(document(record()), document(record(level=metrics(1)))) == 0


@pytest.mark.parametrize(
    ("scale", "expected", "exits"), [(1.1, Verdict.SLOWER, 2), (0.9, Verdict.FASTER, 0)]
)
def test_a_difference_has_a_verdict_and_an_exit_code(scale, expected, exits):
    before, after = document(record()), document(record(level=metrics(1, scale=scale)))
    found = one(before, after)
    assert found.verdict is expected
    assert found.ratio.estimate == pytest.approx(scale, rel=0.01)
    assert found.compile_ratio == pytest.approx(scale)
    assert found.memory_ratio == 1.0
    assert found.p_value < 0.05
    assert code(before, after) == exits
    mirrored = one(after, before)
    assert {found.verdict, mirrored.verdict} == {Verdict.FASTER, Verdict.SLOWER}


def test_plain_latencies_are_one_process_and_carry_no_verdict():
    level = {"latencies_ms": [1.0, 1.1, 1.2, 1.1]}
    found = one(document(record(level=level)), document(record()))
    assert found.verdict is Verdict.UNCLEAR
    assert "at least 3" in found.reason
    assert found.baseline_ms.processes == 1


def test_a_missing_case_is_named_and_never_green():
    both, alone = document(record(), record("w2")), document(record(level=metrics(1)))
    for before, after, side in ((both, alone, "candidate"), (alone, both, "baseline")):
        summary = summarize_comparisons(compare_documents(before, after))
        assert summary.missing == (f"label-w2 jax_xla:xla (jax, host-cpu): not in the {side}",)
        assert (summary.cases, summary.passed, summary.pass_rate) == (2, 1, 0.5)
        assert exit_code(summary) == 3


def test_a_new_case_with_a_wrong_output_is_wrong():
    both = document(record(), record("w2", status="wrong_output"))
    summary = summarize_comparisons(compare_documents(document(record()), both))
    assert len(summary.wrong) == 1
    assert exit_code(summary) == 2
    assert summarize_comparisons(compare_documents(both, document(record()))).wrong == ()


def test_nothing_in_common_is_missing_data():
    summary = summarize_comparisons(compare_documents(document(record()), document(record("w2"))))
    assert len(summary.missing) == 2
    assert summary.geomean is None
    assert exit_code(summary) == 3
    assert exit_code(summarize_comparisons([])) == 3


def test_wrong_output_is_listed_never_ranked_and_outweighs_missing_data():
    before = document(record(), record("w2"))
    summary = summarize_comparisons(
        compare_documents(before, document(record(status="wrong_output", level=metrics())))
    )
    assert len(summary.wrong) == len(summary.missing) == 1
    assert summary.passed == 0
    assert exit_code(summary) == 2


@pytest.mark.parametrize("status", ["failed", "timeout", "crashed", "out_of_memory", "unsteady"])
def test_a_trial_that_did_not_finish_is_missing_with_its_reason(status):
    found = one(document(record()), document(record(status=status)))
    assert found.fate is Fate.MISSING
    assert found.reason == f"candidate: {status} in compile: no memory"
    assert found.verdict is Verdict.INCOMPARABLE


def test_what_neither_side_supports_is_not_counted():
    bad = record("w2", status="unsupported")
    summary = summarize_comparisons(
        compare_documents(document(record(), bad), document(record(), bad))
    )
    assert (summary.cases, summary.passed) == (1, 1)
    assert exit_code(summary) == 0


def test_the_latest_of_a_case_counts():
    first = {**record(level=metrics(scale=5.0)), "run_id": "earlier"}
    before = document(first, record())
    assert one(before, document(record(level=metrics(1)))).ratio.estimate == pytest.approx(1, 0.02)


def test_the_geomean_is_over_the_common_set_and_not_clipped():
    before = document(record("a"), record("b"), record("c"))
    after = document(
        record("a", level=metrics(1, scale=2.0)), record("b", level=metrics(2, scale=0.25))
    )
    summary = summarize_comparisons(compare_documents(before, after))
    assert summary.geomean == pytest.approx(math.sqrt(0.5), rel=0.01)
    assert (summary.passed, summary.cases) == (2, 3)


def changed(change):
    level = metrics()
    change(level)
    return document(record(level=level))


def block(level):
    return level["processes"][0]["blocks"][0]


INCOMPARABLE = {
    "zero": (changed(lambda m: block(m)["latencies_ms"].append(0.0)), "zero or negative"),
    "huge": (changed(lambda m: block(m)["latencies_ms"].append(1e200)), "1e"),
    "empty process": (changed(lambda m: m["processes"][0]["blocks"].clear()), "no samples"),
    "single": (document(record(level={"latencies_ms": [1.0]})), "only one sample"),
    "data type": (document(record(data_type="bf16")), "data types: fp32 and bf16"),
    "inputs": (document(record(workload={"digest": "x"})), "different workloads"),
    "model": (
        document(record("w9", benchmark_name="m", workload={"architecture": "w1"})),
        "different workloads",
    ),
    "machine": (document(record(), host={**HOST, "cpu_model": "B CPU"}), "different machines"),
    "no machine": (document(record(), host={"cpu_model": None}), "different machines"),
    "threads": (document(record(), host={**HOST, "threads": 1}), "thread counts: 2 and 1"),
}


@pytest.mark.parametrize(("bad", "reason"), INCOMPARABLE.values(), ids=INCOMPARABLE)
def test_bad_input_has_a_named_reason_and_no_ratio(bad, reason):
    found = one(document(record()), bad)
    assert found.fate is Fate.INCOMPARABLE
    assert found.verdict is Verdict.INCOMPARABLE
    assert reason in found.reason
    assert found.ratio is None
    assert code(document(record()), bad) == 3
    assert one(bad, document(record())).fate is Fate.INCOMPARABLE


REFUSED = {
    "NaN": lambda m: block(m)["latencies_ms"].append(math.nan),
    "negative": lambda m: block(m)["latencies_ms"].append(-1),
    "text": lambda m: block(m)["latencies_ms"].append("1"),
    "null": lambda m: block(m)["latencies_ms"].append(None),
    "true": lambda m: block(m)["latencies_ms"].append(True),
    "huge": lambda m: block(m)["latencies_ms"].append(10**400),
    "empty block": lambda m: block(m)["latencies_ms"].clear(),
    "no latencies": lambda m: block(m).pop("latencies_ms"),
    "odd processes": lambda m: m.update(processes="many"),
    "odd block": lambda m: m["processes"][0]["blocks"].append(3),
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_what_is_not_a_measurement_is_refused_with_its_place(change):
    whole = plain_document()
    [level] = whole["benchmarks"][0]["metrics"].values()
    change(level)
    with pytest.raises(ResultsFileError, match=r"^a test's document is not .*(\$\.bench|NaN)"):
        decoded(whole)


@pytest.mark.parametrize("broken", [None, 1, "record", [], {}, {"definition": None}])
def test_a_record_without_shape_is_named_by_its_position(broken):
    whole = plain_document()
    whole["benchmarks"].append(broken)
    with pytest.raises(ResultsFileError, match=r"at `\$\.benchmarks\[\d\]"):
        decoded(whole)


def test_a_document_without_results_is_missing_data():
    assert code(document(record()), {"benchmarks": []}) == 3


def test_unequal_sample_counts_are_fine():
    uneven = metrics(1, processes=3, rounds=7)
    del uneven["processes"][0]["blocks"][3:]
    found = one(document(record()), document(record(level=uneven)))
    assert found.fate is Fate.COMPARED
    assert found.ratio.processes == 3


def test_only_races_pair_their_rounds():
    # A machine whose speed changes by a factor of 3 hides 2 % unless rounds are paired.
    drift = np.geomspace(1, 3, 10)
    sides = [(1, 1.0, "pt_inductor:eager"), (2, 0.98, "jax_xla:xla")]
    raced, alone = (
        [
            record(competitor=name, level=metrics(seed, scale=scale, drift=drift, race=race))
            for seed, scale, name in sides
        ]
        for race in ("race-1", None)
    )
    (paired,) = compare_to_baseline(raced)
    (unpaired,) = compare_to_baseline(alone)
    assert paired.paired
    assert not unpaired.paired
    assert paired.verdict is Verdict.FASTER
    assert paired.ratio.estimate == pytest.approx(0.98, abs=0.003)


def test_races_of_unequal_counts_pair_what_they_share():
    long, short = metrics(1, race="r"), metrics(2, race="r", processes=3, rounds=6)
    (found,) = compare_to_baseline(
        [record(competitor="pt_inductor:eager", level=long), record(level=short)]
    )
    assert found.paired
    assert found.ratio.processes == 3


def test_a_race_that_was_not_interleaved_is_not_paired():
    sides = [metrics(1, race="r"), metrics(2, race="r")]
    sides[0]["race"]["interleaved"] = False
    (found,) = compare_to_baseline(
        [record(competitor="pt_inductor:eager", level=sides[0]), record(level=sides[1])]
    )
    assert not found.paired


@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_a_disturbed_race_has_no_verdict(side):
    def level(scale, share):
        found = metrics(1, scale=scale)
        for process in found["processes"]:
            for number, one_block in enumerate(process["blocks"]):
                one_block["contended"] = number < share * len(process["blocks"])
        return found

    def compared(share):
        shares = (share, 0.0) if side == "baseline" else (0.0, share)
        old, new = (record(level=level(*each)) for each in zip((3.0, 1.0), shares, strict=True))
        return one(document(old), document(new))

    found = compared(0.6)
    assert found.verdict is Verdict.UNCLEAR
    assert found.withheld is Verdict.FASTER
    assert found.word == "unclear (disturbed)"
    assert found.reason == f"disturbed: other processes used the CPUs in 60% of the {side}'s blocks"
    summary = summarize_comparisons([found])
    assert exit_code(summary) == 0
    assert summary_line(summary) == (
        "other processes disturbed too many cases for a mean, 1 disturbed"
    )
    found = compared(0.5)
    assert found.verdict is Verdict.FASTER
    assert found.word == "faster"


def test_without_a_baseline_each_competitor_is_missing_one():
    (found,) = compare_to_baseline([record()])
    assert found.fate is Fate.MISSING
    assert "pt_inductor:eager" in found.reason


def test_a_baseline_with_a_wrong_answer_is_listed_and_nothing_is_ranked_against_it():
    found = compare_to_baseline(
        [record(competitor="pt_inductor:eager", status="wrong_output"), record()]
    )
    assert {item.fate for item in found} == {Fate.WRONG, Fate.MISSING}
    assert exit_code(summarize_comparisons(found)) == 2


def test_a_baseline_of_another_framework_serves_where_it_is_the_only_one():
    torch = "ModelFrameworkType.PYTORCH"
    eager = record(competitor="pt_inductor:eager", framework=torch)
    (found,) = compare_to_baseline([eager, record(level=metrics(1))])
    assert found.fate is Fate.COMPARED


def test_a_document_is_read_with_the_checks_of_the_store(tmp_path):
    path = tmp_path / "r.json"
    with pytest.raises(ResultsFileError, match="does not exist"):
        read_document(path)
    for text, reason in (
        ("{", "is not JSON"),
        ("[]", "is not a results file"),
        ('{"schema_version": 7}', "schema version 7"),
    ):
        path.write_text(text)
        with pytest.raises(ResultsFileError, match=reason):
            read_document(path)
    path.write_bytes(content_of(LATEST))
    whole = read_document(path)
    assert exit_code(summarize_comparisons(compare.compare_documents(whole, whole))) == 0


@pytest.mark.slow
def test_processes_that_share_the_work_find_the_same(monkeypatch):
    digests = ["w1", "w2", "w3"]
    before = document(*(record(digest) for digest in digests))
    after = document(*(record(digest, level=metrics(1, scale=1.1)) for digest in digests))
    alone = compare_documents(before, after)
    shared = []
    monkeypatch.setattr(compare, "process_count", lambda count, **_: shared.append(count) or 2)
    assert compare_documents(before, after) == alone
    assert shared == [3]


def test_a_script_of_the_user_is_not_imported_again(monkeypatch):
    monkeypatch.delitem(sys.modules, "comparative_benchmark.cli.command", raising=False)
    assert compare.process_count(10**6, least=1) == 1
