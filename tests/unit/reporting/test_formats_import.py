"""Files of other tools: their contents, and refusals with file and line."""

import copy
import datetime
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comparative_benchmark.reporting.formats.interface import (
    Source,
    detect,
    importer,
    read_file,
    read_source,
)
from comparative_benchmark.reporting.history.database import rows_of
from comparative_benchmark.reporting.history.rows import Contents, FormatError, row_of

BASE = "model=resnet50, test=eval, device=cuda, bs=32, extra_args=['--inductor', 'a, b'], metric="
TORCHBENCH = {
    "name": "test_bench",
    "environ": {
        "pytorch_git_version": "0" * 40,
        "pytorch_version": "2.12.0",
        "device": "NVIDIA A100-SXM4-40GB",
    },
    "metrics": {
        f"{BASE}latencies": 9.12,
        f"{BASE}cpu_peak_mem": 1.9,
        "model=a, test=eval, device=cpu, bs=None, extra_args=[], metric=latencies": "failed",
        "model=b, test=eval, device=cpu, bs=None, extra_args=[], metric=latencies": 3.0,
        "model=b, test=eval, device=cpu, bs=None, extra_args=[], metric=cpu_peak_mem": "OOM",
        "model=c, test=eval, device=cpu, bs=None, extra_args=[], metric=latencies": "skip",
        "model=d, test=eval, device=cpu, bs=1, extra_args=[], metric=latencies": "not_implemented",
        "test_eval[resnet50-cuda-eager]_latency": 4.5,
        "model=e, test=eval, device=cpu, bs=1, extra_args=[], metric=latencies": 2.0,
        "model=e, test=eval, device=cpu, bs=1, extra_args=[], metric=accuracy": "pass",
        "alexnet-eval_latency": 7.0,
        "v3_score": 1000.5,
    },
}
DYNAMO = {
    "timestamp": 1767225600,
    "benchmark": {
        "name": "TorchInductor",
        "mode": "inference",
        "dtype": "bfloat16",
        "extra_info": {"device": "cuda", "batch_size": "8"},
    },
    "model": {"name": "BERT", "type": "OSS model", "backend": "inductor", "origins": ["hf"]},
    "dependencies": {"torch": {"version": "2.12.0", "extra_info": {}}},
}
GOOGLE = {
    "context": {
        "date": "2026-01-02T03:04:05+00:00",
        "host_name": "builder",
        "num_cpus": 8,
        "mhz_per_cpu": 3000,
        "load_avg": [0.5],
    },
    "benchmarks": [
        *(
            {
                "name": "BM_main",
                "run_name": "BM_main",
                "run_type": "iteration",
                "repetitions": 3,
                "repetition_index": index,
                "threads": 1,
                "iterations": 100,
                "real_time": time,
                "cpu_time": 1.0,
                "time_unit": "us",
                "items_per_second": 7.0,
            }
            for index, time in enumerate((2000.0, 1000.0, 4000.0))
        ),
        {
            "name": "BM_main_mean",
            "run_name": "BM_main",
            "run_type": "aggregate",
            "aggregate_name": "mean",
            "real_time": 9999.0,
            "cpu_time": 1.0,
            "time_unit": "us",
        },
        {"name": "BM_bad", "error_occurred": True, "error_message": "no device"},
        {"name": "BM_unit", "real_time": 1.0, "time_unit": "fortnights"},
    ],
}
OPENXLA = {
    "trigger": {"timestamp": "2024-08-09T00:00:00+00:00"},
    "execution_environment": {
        "python_environment": [
            {"name": "jax", "version": "0.4.30"},
            {"name": "zipp", "version": "1"},
        ]
    },
    "benchmarks": [
        {
            "definition": {
                "benchmark_name": "models/BERT_LARGE_FP32_JAX/inputs/INPUT_DATA_MODEL_DEFAULT",
                "framework": "ModelFrameworkType.JAX",
                "data_type": "fp32",
                "batch_size": 1,
                "compiler": "xla",
                "device": "c2-standard-16",
                "tags": ["transformer", "batch-1"],
            },
            "metrics": {
                "framework_level": {
                    "min_latency_ms": 1.0,
                    "median_latency_ms": 2.0,
                    "warmup_iterations": 5,
                    "benchmark_iterations": 100,
                    "compile_time_s": 1.5,
                    "device_memory_peak_mb": None,
                }
            },
        },
        {
            "definition": {
                "benchmark_name": "models/X/inputs/Y",
                "framework": "ModelFrameworkType.PYTORCH",
                "compiler": "inductor",
                "device": "host-cpu",
            },
            "metrics": {"framework_level": {"error": "exit code 1"}},
        },
    ],
}


def source(document):
    return Source("a.json", json.dumps(document, indent=1).encode())


def records(*metrics):
    return [
        {**DYNAMO, "metric": {"name": name, "benchmark_values": values, "extra_info": extra}}
        for name, values, extra in metrics
    ]


def test_torchbench_metrics_by_configuration():
    imported = importer("auto")(
        Source("metrics-20260102030405.json", json.dumps(TORCHBENCH).encode())
    )
    assert not imported.refused
    assert imported.skipped == 1
    results = {result.case: result for result in imported.results}
    by_compiler = {r.compiler: r for r in imported.results if r.case == "test_bench/resnet50"}
    inductor = by_compiler["--inductor a, b"]
    assert inductor.latency_ms == 9.12
    assert inductor.batch_size == 32
    # TorchBench's figure under TorchBench's name: its unit is disputed.
    assert inductor.metrics == {"cpu_peak_mem": 1.9}
    assert inductor.host_memory_peak_mb is None
    assert inductor.timestamp == "2026-01-02T03:04:05+00:00"
    assert inductor.versions == {"torch": "2.12.0"}
    assert by_compiler["eager"].latency_ms == 4.5
    assert (results["test_bench/a"].status, results["test_bench/a"].reason) == ("failed", "failed")
    # Failed in one metric, it has no speed in another.
    assert results["test_bench/b"].status == "failed"
    assert results["test_bench/b"].latency_ms is None
    assert results["test_bench/b"].metrics == {"latencies": 3.0}
    assert results["test_bench/d"].status == "unsupported"
    assert (results["test_bench/e"].status, results["test_bench/e"].latency_ms) == ("ok", 2.0)
    assert results["test_bench/alexnet"].latency_ms == 7.0
    assert results["test_bench/v3_score"].metrics == {"v3_score": 1000.5}


def test_training_and_other_gpus_are_other_cases():
    names = [
        f"model=a, test={test}, device=cpu, bs=1, extra_args=[], metric=latencies"
        for test in ("eval", "train")
    ]
    document = {**TORCHBENCH, "metrics": dict.fromkeys(names, 1.0)}
    found = importer("auto")(Source("a.json", json.dumps(document).encode())).results
    assert [result.case for result in found] == ["test_bench/a", "test_bench/a/train"]
    lines = []
    for mode, arch in (("inference", "A100"), ("training", "A100"), ("inference", "H100")):
        [line] = copy.deepcopy(records(("abs_latency", [1.0], {})))
        line["benchmark"]["mode"] = mode
        line["benchmark"]["extra_info"]["arch"] = arch
        lines.append(line | {"runners": []})
    found = importer("auto")(Source("a.json", json.dumps(lines).encode())).results
    rows = [row_of(result, time=datetime.datetime.now(datetime.UTC)) for result in found]
    assert len({row.series for row in rows}) == 3


@pytest.mark.parametrize("batch", ["\u00b2", "9" * 5000])
def test_a_batch_size_that_is_no_count_is_left_out(batch):
    name = f"model=a, test=eval, device=cpu, bs={batch}, extra_args=[], metric=latencies"
    oss = copy.deepcopy(records(("abs_latency", [1.0], {})))
    oss[0]["benchmark"]["extra_info"]["batch_size"] = batch
    for document in ({**TORCHBENCH, "metrics": {name: 1.0}}, oss):
        [result] = importer("auto")(Source("a.json", json.dumps(document).encode())).results
        assert (result.latency_ms, result.batch_size) == (1.0, None)


def test_a_torchbench_metric_that_is_no_number_is_refused_with_its_line():
    document = {**TORCHBENCH, "metrics": {"good": 1.0, "bad": [1], "worse": None}}
    text = json.dumps(document, indent=1).replace("1.0", "NaN", 0)
    imported = importer("torchbench")(Source("a.json", text.encode()))
    assert [result.case for result in imported.results] == ["test_bench/good"]
    lines = text.splitlines()
    at = {
        name: 1 + next(i for i, line in enumerate(lines) if f'"{name}"' in line)
        for name in ("bad", "worse")
    }
    assert imported.refused == (
        f"a.json:{at['bad']}: bad: Expected `float | str`, got `array`",
        f"a.json:{at['worse']}: worse: Expected `float | str`, got `null`",
    )


def test_records_of_the_oss_database_by_configuration():
    document = records(
        ("abs_latency", [1.0, 3.0, 2.0], {}), ("accuracy", [], {"benchmark_values": '["pass"]'})
    )
    for text in (json.dumps(document), "\n".join(map(json.dumps, document))):
        imported = importer("auto")(Source("a.json", text.encode()))
        assert not imported.refused
        [result] = imported.results
        assert result.case == "TorchInductor/BERT"
        assert result.latency_ms == 2.0
        assert result.batch_size == 8
        assert result.backend == "inductor"
        assert result.device == "cuda"
        assert result.timestamp == "2026-01-01T00:00:00+00:00"
        assert result.extra["texts"] == {"accuracy": '["pass"]'}
        assert result.versions == {"torch": "2.12.0"}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('["pass_due_to_skip"]', "ok"),
        ('["fail_accuracy"]', "failed"),
        ('["eager_two_runs_differ"]', "failed"),
    ],
)
def test_a_program_with_a_failed_check_has_no_speed(text, status):
    document = records(("abs_latency", [1.0], {}), ("accuracy", [], {"benchmark_values": text}))
    [result] = importer("oss-v3")(Source("a.json", json.dumps(document).encode())).results
    assert (result.status, result.latency_ms) == (status, 1.0 if status == "ok" else None)
    assert result.reason == (None if status == "ok" else text)


def test_lines_that_are_no_records_are_refused_by_number_and_the_rest_kept():
    good = json.dumps(records(("abs_latency", [1.0], {}))[0])
    lines = [good, "{not json", "", '{"metric": {"name": "a"}}', "7", good.replace("1.0", '"x"')]
    imported = importer("oss-v3")(Source("a.json", "\n".join(lines).encode()))
    by_line = {sentence.split(":")[1]: sentence for sentence in imported.refused}
    assert sorted(by_line) == ["2", "4", "5", "6"]
    assert "malformed" in by_line["2"]
    assert "missing required field `benchmark_values`" in by_line["4"]
    assert by_line["5"] == "a.json:5: not a record: Expected `object`, got `int`"
    assert "`$.metric.benchmark_values[0]`" in by_line["6"]
    assert [result.latency_ms for result in imported.results] == [1.0]


def test_google_benchmark_repetitions_and_errors():
    imported = importer("auto")(source(GOOGLE))
    main, bad = imported.results
    assert main.latency_ms == 2.0
    assert main.extra["repetitions_ms"] == [2.0, 1.0, 4.0]
    assert main.metrics == {"items_per_second": 7.0, "cpu_time_ms": 0.001}
    assert main.timestamp == "2026-01-02T03:04:05+00:00"
    assert main.host == {"hostname": "builder", "logical_cpus": 8}
    assert (bad.case, bad.status, bad.reason) == ("BM_bad", "failed", "no device")
    assert bad.latency_ms is None
    [sentence] = imported.refused
    line = source(GOOGLE).content.partition(b'{\n   "name": "BM_unit"')[0].count(b"\n") + 1
    assert sentence == (
        f"a.json:{line}: BM_unit: Invalid enum value 'fortnights' - at `$.time_unit`"
    )


def test_google_benchmark_with_aggregates_only_gives_the_median():
    aggregates = [
        {"name": f"B_{name}", "run_name": "B", "run_type": "aggregate", "aggregate_name": name,
         "real_time": time, "cpu_time": 0.0, "time_unit": "s", "items_per_second": 10 * time}
        for name, time in (("mean", 3.0), ("median", 2.0), ("stddev", 0.1))
    ]  # fmt: skip
    complexity = {**aggregates[0], "name": "B_BigO", "run_name": "B", "aggregate_name": "BigO"}
    complexity |= {"run_name": "All", "cpu_coefficient": 1.0, "big_o": "N"}
    document = {**GOOGLE, "benchmarks": [*aggregates, complexity]}
    imported = importer("google-benchmark")(source(document))
    [result] = imported.results
    assert not imported.refused
    assert (result.latency_ms, result.metrics["items_per_second"]) == (2000.0, 20.0)


def test_results_of_the_openxla_suite():
    first, second = importer("auto")(source(OPENXLA)).results
    assert first.backend == "jax_xla"
    assert first.compiler == "xla"
    assert first.framework == "jax"
    assert first.latency_ms == 2.0
    assert first.compile_ms == (1500.0,)
    assert first.versions == {"jax": "0.4.30"}
    assert first.metrics["benchmark_iterations"] == 100
    assert first.timestamp == "2024-08-09T00:00:00+00:00"
    assert second.backend == "pt_inductor"
    assert (second.status, second.reason, second.latency_ms) == ("failed", "exit code 1", None)


def test_a_damaged_record_of_the_openxla_suite_is_refused_with_its_line():
    document = json.loads(json.dumps(OPENXLA))
    del document["benchmarks"][0]["metrics"]["framework_level"]["median_latency_ms"]
    del document["benchmarks"][0]["metrics"]["framework_level"]["compile_time_s"]
    imported = importer("auto")(source(document))
    assert [result.backend for result in imported.results] == ["pt_inductor"]
    lines = source(document).content.decode().splitlines()
    line = lines.index("  {", lines.index(' "benchmarks": [')) + 1
    assert imported.refused == (f"a.json:{line}: missing 'median_latency_ms' or 'error'",)


@pytest.mark.parametrize(
    ("document", "name"),
    [
        (TORCHBENCH, "torchbench"),
        (records(("a", [1.0], {})), "oss-v3"),
        (GOOGLE, "google-benchmark"),
        (OPENXLA, "openxla-suite"),
    ],
)
def test_formats_are_told_apart(document, name):
    assert detect(source(document)) == name
    others = {"torchbench", "google-benchmark", "openxla-suite"} - {name}
    for other in others:
        with pytest.raises(FormatError, match=r"a\.json:1: not "):
            importer(other)(source(document))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a.json:1: not JSON"),
        ('{\n"a": 1,\n]', "a.json:3: not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "unknown format; choose one with --format: oss-v3, torchbench"),
        ('{"a": 1}', "unknown format; choose one with --format"),
        ("7", "unknown format; choose one with --format"),
        ('{"schema_version": 1, "runs": [], "benchmarks": []}', "cbs history import"),
    ],
)
def test_what_is_none_of_them_is_refused_by_name(text, words):
    with pytest.raises(FormatError) as error:
        importer("auto")(Source("a.json", text.encode()))
    assert words in str(error.value)


def test_bytes_that_are_no_text_are_refused_by_line(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'{\n"a": "\xff"}')
    with pytest.raises(FormatError, match=r"a\.json:2: not UTF-8 text"):
        read_source(path)
    with pytest.raises(FormatError, match="No such file"):
        read_source(tmp_path / "b.json")


def test_rows_of_foreign_files(tmp_path):
    path = tmp_path / "metrics-20260102030405.json"
    path.write_text(json.dumps(TORCHBENCH))
    contents = read_file(path)
    rows, refused = rows_of(path, contents)
    assert refused == []
    assert {row.source for row in rows} == {"torchbench"}
    assert {row.backend for row in rows} == {"torchbench"}
    assert contents.skipped == 1
    again, _ = rows_of(path, read_file(path, "torchbench"))
    assert [row.content for row in rows] == [row.content for row in again]


def test_refusals_name_file_and_line(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**TORCHBENCH, "metrics": {"bad": []}}, indent=1))
    contents = read_file(path)
    line = path.read_text().partition('"bad"')[0].count("\n") + 1
    assert contents.refused == (f"{path}:{line}: bad: Expected `float | str`, got `array`",)


def test_a_text_that_no_database_has_is_refused_with_the_result(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**TORCHBENCH, "metrics": {"a\0b": 1.0, "good": 1.0}}))
    rows, [refused] = rows_of(path, read_file(path))
    assert [row.workload for row in rows] == ["test_bench/good"]
    assert "`$.workload`" in refused


def test_what_is_not_a_number_costs_only_its_benchmark():
    text = source(GOOGLE).content.replace(b'"real_time": 9999.0', b'"real_time": NaN')
    text = text.replace(b'"items_per_second": 7.0', b'"items_per_second": -Infinity, "NaN": "NaN"')
    imported = importer("auto")(Source("a.json", text))
    assert [(r.case, r.metrics) for r in imported.results] == [
        ("BM_main", {"cpu_time_ms": 0.001}),
        ("BM_bad", {}),
    ]


def places(value, path=()):
    """Yields the path of every part of a document."""
    yield path
    items = {dict: dict.items, list: enumerate}.get(type(value))
    for key, item in items(value) if items else ():
        yield from places(item, (*path, key))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("torchbench", TORCHBENCH),
        ("oss-v3", records(("abs_latency", [1.0], {"a": "b"}))),
        ("google-benchmark", GOOGLE),
        ("openxla-suite", OPENXLA),
    ],
)
@settings(max_examples=100)
@given(data=st.data())
def test_any_damage_is_refused_or_read_and_nothing_else(name, document, data):
    damaged = copy.deepcopy(document)
    path = data.draw(st.sampled_from(list(places(document))[1:]))
    holder = damaged
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = data.draw(ANYTHING)
    text = Source("a.json", json.dumps(damaged).encode())
    for format_name in (name, "auto"):
        imported = read(format_name, text)
        assert all(sentence.startswith("a.json:") for sentence in imported.refused)
        json.dumps([result.as_json() for result in imported.results], allow_nan=False)


def read(format_name, text):
    """Reads a file; one that is refused as a whole is one refusal."""
    try:
        return importer(format_name)(text)
    except FormatError as error:
        return Contents(refused=(str(error),))
