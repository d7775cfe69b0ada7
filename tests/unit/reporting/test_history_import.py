"""`cbs history import`: results files become rows; an invalid file is refused as a whole."""

import copy
import datetime
import json
import os
import threading
from pathlib import Path

import pytest
from results_support import AGES, completed, content_of, metrics, record
from test_history_regressions import cbs  # noqa: F401

from comparative_benchmark.analysis.stats.analysis import latency_interval
from comparative_benchmark.reporting.history import results_files
from comparative_benchmark.reporting.history.database import rows_of
from comparative_benchmark.results.results_file import encode

TIME = "2026-11-01T02:00:00+01:00"


def results(*records, **host):
    run = {
        "run_id": "r",
        "trigger": {"timestamp": TIME},
        "execution_environment": {
            "git_revision": "abc",
            "host": {"cpu_model": "A CPU", "threads": 2, "python": "3.11.7", **host},
            "environments": {"old": {"python_version": "3.12.1"}},
        },
    }
    return json.loads(encode(completed({"runs": [run], "benchmarks": list(records)})))


def full_record(digest="w1", **changes):
    level = {
        **metrics(),
        "program": {"artifact_sha256": "d" * 64, "weights": "arguments"},
        "compile": {"cold_ms": [90.0, 110.0, 95.0], "warm_ms": [12.0]},
        "verification": {"relative_rmse": 2e-7},
        "final_verification": {"relative_rmse": 3e-7},
        "device_memory_peak_mb": None,
        "stop_reason": "precision",
    }
    made = record(digest, level=level, tags=["x"], **changes)
    return {**made, "versions": {"jax": "0.10.2", "numpy": "2.4.6"}}


def read(tmp_path, document, name="results.json"):
    path = tmp_path / name
    path.write_text(json.dumps(document))
    rows, refused = rows_of(path, results_files.read(path))
    assert refused == []
    return rows


def samples_of(document):
    [level] = document["benchmarks"][0]["metrics"].values()
    return [[v for b in p["blocks"] for v in b["latencies_ms"]] for p in level["processes"]]


def test_a_record_becomes_a_row(tmp_path):
    made = full_record(competitor="pt_inductor:inductor+freezing", options=["freezing"])
    (row,) = read(tmp_path, results(made))
    assert (row.workload, row.benchmark) == ("label-w1", "models/W1")
    assert len(row.workload_digest) == 64
    assert row.competitor == "pt_inductor:inductor+freezing"
    assert (row.compiler, row.options) == ("inductor", ("freezing",))
    assert (row.framework, row.level, row.data_type) == ("jax", "framework_level", "fp32")
    assert (row.machine, row.threads, row.device) == ("A CPU", 2, "host-cpu")
    assert row.time == datetime.datetime.fromisoformat(TIME)
    assert (row.run_id, row.revision, row.program) == ("r", "abc", "d" * 64)
    # The interpreter runs the program as the packages do.
    assert row.versions == {"jax": "0.10.2", "numpy": "2.4.6", "python": "3.11.7"}
    assert (row.compile_ms, row.warm_compile_ms) == (95.0, 12.0)
    assert (row.host_memory_mb, row.device_memory_mb, row.error) == (50.0, None, 3e-7)
    extra = {"tags": ["x"], "stop_reason": "precision", "weights": "arguments", "contended": True}
    assert {name: row.extra[name] for name in extra} == extra
    assert set(row.extra) == extra.keys() | {"model", "hostname"}


@pytest.mark.parametrize("most", [1, None])
def test_latency_and_interval_are_those_of_the_table(tmp_path, most):
    made = results(full_record())
    [level] = made["benchmarks"][0]["metrics"].values()
    level["processes"] = level["processes"][:most]
    (row,) = read(tmp_path, made)
    table = latency_interval(samples_of(made))
    found = (row.latency_low_ms, row.latency_ms, row.latency_high_ms)
    assert found == (table.low, table.estimate, table.high)
    assert row.processes == table.processes


def test_an_environment_has_its_own_interpreter(tmp_path):
    (row,) = read(tmp_path, results(full_record(environment={"name": "old", "python": "x"})))
    assert row.environment == "old"
    assert row.versions["python"] == "3.12.1"


@pytest.mark.parametrize("status", ["wrong_output", "failed", "unsteady", "out_of_memory"])
def test_what_is_not_ok_has_no_speed_but_a_reason(tmp_path, status):
    (row,) = read(tmp_path, results(full_record(status=status)))
    assert (row.status, row.latency_ms, row.latency_low_ms) == (status, None, None)
    assert row.reason == "in compile: no memory"


def test_a_compile_only_result_has_no_latency(tmp_path):
    made = full_record()
    made["metrics"]["framework_level"]["stop_reason"] = "compile_only"
    (row,) = read(tmp_path, results(made))
    assert (row.latency_ms, row.compile_ms) == (None, 95.0)
    # Nor is it a point of the latency's trend.
    (full,) = read(tmp_path, results(full_record()))
    assert row.series != full.series
    assert row.competitor == f"{full.competitor}+compile-only"


def test_identity_is_that_of_the_record(tmp_path):
    made = results(full_record())
    (one,) = read(tmp_path, made)
    [record_of_it] = made["benchmarks"]
    made["benchmarks"] = [dict(reversed(list(record_of_it.items())))]
    (same,) = read(tmp_path, made, "copy.json")
    assert one.content == same.content
    other = copy.deepcopy(made)
    [level] = other["benchmarks"][0]["metrics"].values()
    level["processes"][0]["blocks"][0]["latencies_ms"][0] *= 1.001
    (changed,) = read(tmp_path, other)
    assert changed.content != one.content


def test_an_older_file_is_the_same_result_whatever_later_versions_add_to_it(tmp_path):
    made = results(full_record())
    (one,) = read(tmp_path, made)
    del made["benchmarks"][0]["definition"]["input_source"]
    (other,) = read(tmp_path, made)
    # Defaults of omitted fields are not in the file.
    assert other.content != one.content
    assert read(tmp_path, made, "copy.json")[0].content == other.content


@pytest.mark.parametrize("age", AGES)
def test_files_of_every_age_are_read(tmp_path, age):
    path = tmp_path / "results.json"
    path.write_bytes(content_of(age))
    rows, refused = rows_of(path, results_files.read(path))
    assert refused == []
    assert len(rows) == len(json.loads(content_of(age))["benchmarks"])
    for row in rows:
        if row.status == "ok":
            assert row.latency_low_ms <= row.latency_ms <= row.latency_high_ms
        assert row.versions["python"]
        assert row.machine


FOREIGN = {
    "empty": ("", "is not JSON"),
    "cut": ('{"schema_version": 1,\n "runs": [', "is not JSON: Expecting value at line 2"),
    "binary": ("\ud800", "is not JSON"),
    "a list": ("[]", "no schema_version"),
    "another program's": ('{"metrics": {}}', "no schema_version"),
    "a newer schema": ('{"schema_version": 2}', "schema version 2, expected 1"),
    "no lists": ('{"schema_version": 1, "runs": {}}', "is not a valid results file"),
    "very deep": ("[" * 100_000, "is not JSON"),
}


@pytest.mark.parametrize(("text", "reason"), FOREIGN.values(), ids=FOREIGN)
def test_a_file_of_another_kind_is_refused(tmp_path, text, reason):
    path = tmp_path / "f.json"
    path.write_bytes(text.encode(errors="surrogatepass"))
    (refused,) = results_files.read(path).refused
    assert refused.startswith(str(path))
    assert reason in refused
    assert "\n" not in refused


def test_a_pipe_is_read_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = json.dumps(results(full_record()))
    writer = threading.Thread(target=pipe.write_text, args=(content,))
    writer.start()
    contents = results_files.read(pipe)
    writer.join()
    assert (len(contents.results), contents.refused) == (1, ())


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    assert "does not exist" in results_files.read(tmp_path / "none.json").refused[0]
    assert "cannot be read" in results_files.read(tmp_path).refused[0]


DAMAGED = {
    "no backend": (lambda r, m: r["definition"].pop("backend"), "`backend`"),
    "an unknown status": (lambda r, m: r.update(status="great"), "'great'"),
    "no samples": (
        lambda r, m: m["processes"][0]["blocks"][0].update(latencies_ms=[]),
        "blocks[0]",
    ),
    "text samples": (
        lambda r, m: m["processes"][0]["blocks"][0].update(latencies_ms=["1"]),
        "latencies_ms[0]",
    ),
    "huge": (lambda r, m: m.update(host_memory_peak_mb=10**400), ""),
    "a batch size that is not one": (
        lambda r, m: r["definition"].update(batch_size="four"),
        "batch_size",
    ),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_record_is_named_by_its_place_and_the_file_refused(tmp_path, damage, reason):
    document = results(full_record(), full_record("w2"))
    bad = document["benchmarks"][1]
    damage(bad, next(iter(bad["metrics"].values())))
    path = write(tmp_path / "results.json", document)
    contents = results_files.read(path)
    assert contents.results == ()
    (refused,) = contents.refused
    assert reason in refused
    assert "$.benchmarks[1]" in refused or not reason


UNUSABLE = {
    "a run of another file": ({"run_id": "q"}, "run q is not in the file"),
    "a zero byte": ({"benchmark_name": "a\0b"}, "`$.benchmark`"),
    "a single sample": ({"samples": [1.0]}, "only one sample"),
    "zero": ({"samples": [0.0, 1.0]}, "zero or negative"),
}


@pytest.mark.parametrize(("change", "reason"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_result_that_the_history_cannot_keep_costs_only_itself(tmp_path, change, reason):
    document = results(full_record(), full_record("w2"))
    bad = document["benchmarks"][1]
    bad["run_id"] = change.get("run_id", bad["run_id"])
    bad["definition"]["benchmark_name"] = change.get("benchmark_name", "models/W2")
    if "samples" in change:
        [level] = bad["metrics"].values()
        level["processes"] = [{"blocks": [{"latencies_ms": change["samples"]}]}]
    path = write(tmp_path / "results.json", document)
    [row], [refused] = rows_of(path, results_files.read(path))
    assert row.benchmark == "models/W1"
    assert refused.startswith(f"{path}: ")
    assert reason in refused


def write(path: Path, document) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_the_command_imports_and_a_second_import_changes_nothing(cbs, tmp_path):  # noqa: F811
    path = write(tmp_path / "a.json", results(full_record(), full_record(device="gpu")))
    code, out, _ = cbs("import", path, "--db", "h.sqlite")
    assert code == 0
    assert out.startswith("2 new and 0 known results from 1 file, 0 refused")
    code, out, _ = cbs("import", path, path, "--db", "h.sqlite")
    assert code == 0
    assert out.startswith("0 new and 4 known results")
    code, out, _ = cbs("ls", "--db", "h.sqlite", "--json")
    assert {item["device"]: item["results"] for item in json.loads(out)} == {
        "host-cpu": 1,
        "gpu": 1,
    }


def test_a_file_that_grew_adds_what_is_new(cbs, tmp_path):  # noqa: F811
    path = write(tmp_path / "a.json", results(full_record()))
    cbs("import", path, "--db", "h.sqlite")
    write(path, results(full_record(), full_record("w2")))
    assert cbs("import", path, "--db", "h.sqlite")[1].startswith("1 new and 1 known results")


def test_what_is_refused_is_named_and_the_rest_imported(cbs, tmp_path):  # noqa: F811
    good = write(tmp_path / "good.json", results(full_record()))
    bad = tmp_path / "bad.json"
    bad.write_text("{\n\n!")
    code, out, err = cbs("import", bad, good, tmp_path / "none.json", "--db", "h.sqlite")
    assert code == 1
    assert out.startswith("1 new and 0 known results from 1 file, 2 refused")
    said = err.splitlines()
    assert len(said) == 2
    assert said[0].startswith(f"cbs: refused: {bad} is not JSON")
    assert "line 3, column 1" in said[0]
    assert said[1].startswith(f"cbs: refused: {tmp_path / 'none.json'} does not exist")
