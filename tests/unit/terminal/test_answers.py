"""The last lines of a run: the recommendation, its confidence, and failures."""

import shlex
from pathlib import Path

import pytest
from results_support import completed

from comparative_benchmark.api.results import result_row
from comparative_benchmark.results.case import cases_of
from comparative_benchmark.results.comparing.compare_remarks import mixture_remarks
from comparative_benchmark.terminal.run_summary import summary_lines
from comparative_benchmark.terminal.subjects import rerun_command
from comparative_benchmark.terminal.tables import results_table

COMMAND = ("/somewhere/cbs", "run", "my net.onnx", "--backend", "a,b")


def record(competitor, level="compiler_level", status="ok", **fields):
    backend, _, compiler = competitor.partition(":")
    definition = {
        "backend": backend,
        "compiler": compiler,
        "level": level,
        "workload": {"digest": fields.pop("workload", "net"), "label": "NET"},
        "benchmark_name": f"models/NET/inputs/{competitor}",
        "framework": "ModelFrameworkType.ONNX",
        **fields.pop("definition", {}),
    }
    own = fields.pop("metrics", {})
    return {"definition": definition, "status": status, "metrics": {level: own}, **fields}


def times(*medians, **metrics):
    """Processes that agree within themselves, by their medians in ms."""
    processes = [
        {"blocks": [{"latencies_ms": [m * 0.999, m, m * 1.001]} for _ in range(2)]} for m in medians
    ]
    return {"processes": processes, **metrics}


def said(*records, **how):
    return summary_lines(cases_of(completed({"benchmarks": list(records)})), **how)


FAST = record(
    "onnxruntime:default",
    metrics=times(1.0, 1.01, 1.02, compile_time_ms=30.0, host_memory_peak_mb=104.8576),
)
SLOW = record("openvino:latency", metrics=times(2.0, 2.01, 2.02))
CLOSE = record("iree:llvm-cpu", metrics=times(1.0, 1.03, 1.02))


def test_the_fastest_is_named_with_its_interval_and_what_it_costs():
    first, second, *_, last = said(FAST, SLOW, command=COMMAND)
    assert first.startswith("Use onnxruntime:default (onnx): 1.01 (0.9")
    assert " ms (95 %), the lowest latency with a correct output; it compiles in" in first
    assert "compiles in 0.03 s" in first
    assert first.endswith("uses at most 100 MiB.")
    assert second.startswith("It is clearly faster than openvino:latency (onnx) (1.99")
    assert last == "To repeat: cbs run 'my net.onnx' --backend a,b"
    *_, last = said(FAST, SLOW, command=("/x/comparative_benchmark/__main__.py", "run"))
    assert last == "To repeat: python -m comparative_benchmark run"


def test_a_stack_in_several_frameworks_is_held_against_the_best_alone():
    def of(framework, *medians):
        return record(
            "iree:llvm-cpu",
            metrics=times(*medians),
            definition={"framework": f"ModelFrameworkType.{framework}"},
        )

    lines = said(of("JAX", 1.0, 1.01, 1.02), of("PYTORCH", 2.0, 2.01, 2.02))
    assert lines[0].startswith("Use iree:llvm-cpu (jax)")
    assert lines[1].startswith("It is clearly faster than iree:llvm-cpu (pytorch) (1.99")


def test_what_is_not_certain_is_said():
    lines = said(FAST, CLOSE, SLOW)
    [line] = [line for line in lines if line.startswith("It is not clearly faster than")]
    assert line.startswith("It is not clearly faster than iree:llvm-cpu (onnx)")
    assert any(line.startswith("It is clearly faster than openvino:latency") for line in lines)
    again = "cbs run 'my net.onnx' --backend a,b -o r.json --resume --processes 6"
    told = f"More processes may decide this; to add them, run: {again}"
    assert told in said(FAST, CLOSE, SLOW, command=COMMAND, output=Path("r.json"))
    assert told in said(
        FAST,
        CLOSE,
        command=(*COMMAND, "--processes", "3", "-o", "r.json", "--resume", "--processes=3"),
        output=Path("r.json"),
    )
    enough = record("iree:llvm-cpu", metrics=times(1.0, 1.03, 1.02, 1.0, 1.03, 1.02))
    first = record("onnxruntime:default", metrics=times(1.0, 1.01, 1.02, 1.0, 1.01, 1.02))
    lines = said(first, enough, command=COMMAND, output=Path("r.json"))
    assert not any("More processes" in line for line in lines)


EVIL = "a b'; rm -rf x; '"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"benchmark_name": EVIL}, ["-name", EVIL]),
        ({"device": EVIL}, ["-device", EVIL]),
        ({"compiler": EVIL}, ["--backend", f"iree:{EVIL}"]),
        ({"environment": {"name": "old", "python": EVIL}}, ["--env", f"old={EVIL}"]),
        ({"input_data": "USER_1", "input_source": f"/{EVIL}"}, ["--inputs", f"/{EVIL}"]),
        ({"model_parameters": {"folder": EVIL, "test": EVIL}}, ["--torchbench", EVIL, "-t", EVIL]),
        ({"model_parameters": {"folder": "a"}}, ["--torchbench", "a", "-t", "eval"]),
    ],
    ids=["name", "device", "compiler", "environment", "inputs", "folder", "old folder"],
)
def test_a_text_of_a_foreign_file_is_one_word_of_a_command(changes, words):
    given = record("iree:llvm-cpu", metrics=times(1.0), definition=changes)
    [case] = cases_of(completed({"benchmarks": [given]}))
    typed = shlex.split(rerun_command(case.result))
    assert typed[:2] == ["cbs", "run"]
    start = typed.index(words[0])
    assert typed[start : start + len(words)] == words


def contended(*medians):
    busy = times(*medians)
    for process in busy["processes"]:
        for block in process["blocks"]:
            block["contended"] = True
    return busy


def test_a_disturbed_race_has_no_winner():
    busy = contended(3.0, 3.01, 3.02)
    first, second = said(FAST, record("openvino:latency", metrics=busy))
    assert first.startswith(
        "No winner, because other processes used the CPUs; the fastest was onnxruntime:default"
    )
    assert second.startswith("It is not clearly faster than openvino:latency (onnx) (3.0 (2.9")


def test_one_process_supports_no_verdict_and_the_way_to_one_is_reported():
    lines = said(
        record("onnxruntime:default", metrics=times(1.0, stop_reason="fixed")),
        record("openvino:latency", metrics=times(9.0, stop_reason="fixed")),
    )
    assert "1 ms in one process" in lines[0]
    assert not any("It is clearly faster" in line for line in lines)
    assert lines[1].endswith("; to race them, use cbs run without --quick, -w and -iter.")


def test_a_wrong_output_is_never_taken_however_fast():
    wrong = record(
        "iree:llvm-cpu", status="wrong_output", phase="verify_first_run", reason="output 0: off."
    )
    lines = said(wrong, SLOW)
    assert lines[0].startswith("Use openvino:latency (onnx)")
    assert "the only competitor with a correct output" in lines[0]
    assert "iree:llvm-cpu (onnx): wrong_output in verify_first_run: output 0: off." in lines
    crashed = record("openvino:latency", status="crashed", phase="compile", reason="signal 11")
    assert said(wrong, crashed)[0] == "No competitor has a correct output."


def test_what_is_agreed_is_not_called_right():
    agreed = record("tflite:native", metrics=times(1.0, 1.01, 1.02, without_float64="no kernels"))
    (first, *_) = said(agreed, agreed | {"definition": SLOW["definition"]})
    assert "with an output that agrees with a plain run (no float64 run exists)" in first
    assert "right" not in first


def test_a_truth_in_doubt_is_told_from_one_without_float64():
    difference = {"operator": "Resize", "node": "r", "routes": ["one", "other"]}
    check = {"truth_check": {"in_doubt": [difference]}, "without_float64": "its truth is in doubt"}
    doubted = record("tflite:native", metrics=times(1.0, 1.01, 1.02, **check))
    (first, *_) = said(doubted, doubted | {"definition": SLOW["definition"]})
    assert "with an output that agrees with a plain run (the truth is in doubt)" in first


def test_what_is_agreed_says_so_in_table_and_remarks_next_to_the_ranking():
    agreed = record("tflite:native", metrics=times(1.0, 1.01, 1.02, without_float64="no kernels"))
    cases = cases_of(completed({"benchmarks": [agreed, SLOW]}))
    assert [case.result.word for case in cases] == ["agreed", "ok"]
    table = results_table(cases, baseline="openvino:latency").table
    assert list(map(str, table.columns[-1].cells)) == ["agreed", "ok"]
    assert [result_row(case)["status"] for case in cases] == ["agreed", "ok"]
    (remark,) = [line for line in mixture_remarks(cases) if "Agreed" in line]
    assert "proves less than a float64 run: tflite:native (onnx) (no kernels)" in remark


def test_a_result_without_a_rank_is_not_recommended():
    why = "the truth was computed by judge, the backend's own package"
    own = record("judge:half", metrics=times(0.1, 0.1, 0.1, not_ranked=why))
    lines = said(own, SLOW)
    assert lines[0].startswith("Use openvino:latency (onnx)")
    remarks = mixture_remarks(cases_of(completed({"benchmarks": [own, SLOW]})))
    assert f"Not ranked: judge:half (onnx) ({why})." in remarks
    lines = said(own, record("judge:other", metrics=times(0.2, 0.2, 0.2, not_ranked=why)))
    assert lines[0] == "No ranked competitor has a correct output."
    cases = cases_of(completed({"benchmarks": [own, SLOW]}))
    table = results_table(cases, baseline="openvino:latency").table
    verdicts = next(c for c in table.columns if str(c.header) == "verdict")
    assert list(map(str, verdicts.cells)) == ["incomparable", "baseline"]


def test_fewer_bits_are_not_ranked():
    int8 = record(
        "openvino:latency",
        metrics=times(0.1, 0.1, 0.1),
        definition={"data_type": "fp32", "precision": "int8"},
    )
    lines = said(FAST, int8)
    assert lines[0].startswith("Use onnxruntime:default")
    assert "Not ranked (lower precision): openvino:latency (onnx)." in lines


def test_a_framework_next_to_exported_programs_is_said():
    eager = record("pt_inductor:eager", "framework_level", metrics=times(2.0, 2.01, 2.02))
    assert any("include framework overhead" in line for line in said(FAST, eager))


LACKING = {
    "status": "unsupported",
    "phase": "import",
    "absence": {"modules": ["iree.compiler"], "install": "pip install -e '.[iree]'"},
}


def test_what_is_not_installed_is_what_to_try():
    lines = said(
        FAST, record("iree:llvm-cpu", **LACKING), absent="not installed: tflite (pip install x)"
    )
    assert "Other backends are not installed: iree (pip install -e '.[iree]')." in lines
    assert "Other backends are not installed: tflite (pip install x)." in lines
    assert lines[0].startswith("Use onnxruntime:default")
    more = [at_batch(size, "iree:llvm-cpu", **LACKING) for size in (1, 8)]
    sweep = said(*SMALL, *MIDDLE, *more, absent="not installed: tflite (pip install x)")
    assert sweep[-2:] == lines[-2:]


@pytest.mark.parametrize(
    "records", [(FAST,), (FAST, record("openvino:latency", workload="another", metrics=times(2.0)))]
)
def test_nothing_is_said_where_there_is_no_question(records):
    assert said(*records) == []


def at_batch(batch, competitor, *medians, **changes):
    workload = {
        "digest": f"net-{batch}",
        "label": f"NET_{batch}",
        "config_digest": changes.pop("config", "c" * 64),
    }
    definition = {"batch_size": batch, "workload": workload}
    return record(competitor, metrics=times(*medians), definition=definition, **changes)


FIRST, SECOND = "onnxruntime:default", "openvino:latency"
SMALL = (at_batch(1, FIRST, 1.0, 1.01, 1.02), at_batch(1, SECOND, 2.0, 2.01, 2.02))
MIDDLE = (at_batch(8, FIRST, 4.0, 4.01, 4.02), at_batch(8, SECOND, 6.0, 6.01, 6.02))
LARGE = (at_batch(32, FIRST, 20.0, 20.1, 20.2), at_batch(32, SECOND, 9.0, 9.01, 9.02))


def test_a_sweep_names_the_fastest_for_each_range_of_batch_sizes():
    assert said(*SMALL, *MIDDLE, *LARGE) == [
        "Use onnxruntime:default (onnx) up to batch 8, openvino:latency (onnx) from batch 32 on."
    ]
    assert said(*SMALL, *MIDDLE) == [
        "Use onnxruntime:default (onnx) at every batch size from 1 to 8."
    ]
    middle = (at_batch(8, FIRST, 6.0, 6.01, 6.02), at_batch(8, SECOND, 4.0, 4.01, 4.02))
    third = at_batch(32, "iree:llvm-cpu", 4.0, 4.01, 4.02)
    assert said(*SMALL, *middle, *LARGE, third) == [
        (
            "Use onnxruntime:default (onnx) up to batch 1, openvino:latency (onnx) at batch 8, "
            "iree:llvm-cpu (onnx) from batch 32 on."
        )
    ]


def test_a_disturbed_sweep_has_no_winner():
    busy = {**at_batch(8, SECOND), "metrics": {"compiler_level": contended(6.0, 6.01, 6.02)}}
    lines = said(*SMALL, MIDDLE[0], busy)
    assert lines[0] == (
        "No winner, because other processes used the CPUs; the fastest was onnxruntime:default "
        "(onnx) at every batch size from 1 to 8."
    )


def test_a_sweep_names_batch_sizes_without_a_correct_output():
    broken = [at_batch(8, name, 1.0, status="failed") for name in (FIRST, SECOND)]
    large = (at_batch(32, FIRST, 9.0, 9.01, 9.02), at_batch(32, SECOND, 20.0, 20.1, 20.2))
    missing = "No ranked competitor has a correct output at batch 8."
    assert said(*SMALL, *broken, *large) == [
        "Use onnxruntime:default (onnx) at batch 1 to 32.",
        missing,
    ]
    assert said(*SMALL, *broken) == ["Use onnxruntime:default (onnx) at batch 1.", missing]


def test_a_race_that_a_budget_ended_is_not_said_to_have_fixed_counts():
    lines = said(
        record(FIRST, metrics=times(1.0, 1.1, stop_reason="budget")),
        record(SECOND, metrics=times(2.0, 2.1, stop_reason="budget")),
    )
    assert not any("to race them" in line for line in lines)


def test_a_sample_of_zero_has_no_interval():
    odd = record(FIRST, metrics=times(0.0, 0.0, 0.0, median_latency_ms=0.0))
    assert any("Use" in line for line in said(odd, SLOW))
    results_table(cases_of(completed({"benchmarks": [odd, SLOW]})), baseline=SECOND)


def test_a_sweep_tells_where_the_fastest_is_not_certain():
    close = (at_batch(8, FIRST, 4.0, 4.1, 4.2), at_batch(8, SECOND, 4.1, 4.0, 4.3))
    assert said(*SMALL, *close)[1:] == [
        "At batch 8, onnxruntime:default (onnx) is not clearly faster than openvino:latency (onnx)."
    ]


def test_several_models_have_no_common_answer():
    other = at_batch(8, FIRST, 4.0, 4.01, 4.02, config="d" * 64)
    assert said(*SMALL, other) == []
