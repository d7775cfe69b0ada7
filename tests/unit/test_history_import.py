"""`cbs history import`: results files into rows, whatever state they are in."""

import copy
import datetime
import json
from pathlib import Path

import pytest
from test_compare import metrics, record
from test_history_regressions import cbs  # noqa: F401

from comparative_benchmark.history.results_files import ResultsFiles
from comparative_benchmark.history.rows import Refusal
from comparative_benchmark.stats.analysis import latency_interval

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
    return {"schema_version": 1, "runs": [run], "benchmarks": list(records)}


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
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return list(ResultsFiles().rows(path))


def test_a_record_becomes_a_row(tmp_path):
    made = full_record(competitor="pt_inductor:inductor+freezing", options=["freezing"])
    (row,) = read(tmp_path, results(made))
    assert (row.workload, row.workload_digest, row.benchmark) == ("label-w1", "w1", "models/W1")
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
    assert row.extra == {"tags": ["x"], "stop_reason": "precision", "weights": "arguments"}


@pytest.mark.parametrize("most", [1, None])
def test_latency_and_interval_are_those_of_the_table(tmp_path, most):
    made = full_record()
    level = made["metrics"]["framework_level"]
    level["processes"] = level["processes"][:most]
    (row,) = read(tmp_path, results(made))
    table = latency_interval(
        [
            [ms for block in each["blocks"] for ms in block["latencies_ms"]]
            for each in level["processes"]
        ]
    )
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


def test_identity_is_that_of_the_record(tmp_path):
    made = full_record()
    (one,) = read(tmp_path, results(made))
    shuffled = dict(reversed(list(made.items())))
    (same,) = read(tmp_path, results(shuffled), "copy.json")
    assert one.content == same.content
    other = copy.deepcopy(made)
    other["metrics"]["framework_level"]["processes"][0]["blocks"][0]["latencies_ms"][0] *= 1.001
    (changed,) = read(tmp_path, results(other))
    assert changed.content != one.content


FOREIGN = {
    "empty": ("", "line 1, column 1", "is no JSON"),
    "cut": ('{"schema_version": 1,\n "runs": [', "line 2, column 11", "is no JSON"),
    "binary": ("\ud800", "line 1, column 1", "is no JSON"),
    "a list": ("[]", "", "a list and no object"),
    "another program's": ('{"metrics": {}}', "", "no schema_version"),
    "a newer schema": ('{"schema_version": 2}', "", "schema version 2; this program reads 1"),
    "no lists": ('{"schema_version": 1, "runs": {}}', "", "no list of runs"),
    "no benchmarks": ('{"schema_version": 1, "runs": []}', "", "no list of benchmarks"),
    "very deep": ("[" * 100_000, "", "is no JSON"),
}


@pytest.mark.parametrize(("text", "place", "reason"), FOREIGN.values(), ids=FOREIGN)
def test_a_file_that_is_none_of_ours_is_refused_whole(tmp_path, text, place, reason):
    path = tmp_path / "f.json"
    path.write_bytes(text.encode(errors="surrogatepass"))
    (refusal,) = ResultsFiles().rows(path)
    assert isinstance(refusal, Refusal)
    assert refusal.place == place
    assert reason in refusal.reason
    assert str(path) in str(refusal)


def test_a_file_that_can_not_be_read_is_refused(tmp_path):
    (refusal,) = ResultsFiles().rows(tmp_path / "none.json")
    assert "can not be read: No such file" in refusal.reason
    (refusal,) = ResultsFiles().rows(tmp_path)
    assert "can not be read" in refusal.reason


def damaged():
    def changed(change):
        made = full_record()
        change(made)
        return made

    def latencies(value):
        def change(made):
            level = made["metrics"]["framework_level"]
            level["processes"][0]["blocks"][0]["latencies_ms"] = value

        return change

    level = "framework_level"
    return {
        "null": (None, "no definition"),
        "text": ("x", "no definition"),
        "no workload": (changed(lambda m: m["definition"].pop("workload")), "no definition"),
        "no backend": (changed(lambda m: m["definition"].pop("backend")), "backend"),
        "no metrics": (changed(lambda m: m.update(metrics={})), "no metrics"),
        "no status": (changed(lambda m: m.pop("status")), "status None"),
        "a status of its own": (changed(lambda m: m.update(status="great")), "status 'great'"),
        "a run of another file": (changed(lambda m: m.update(run_id="q")), "run q is not in"),
        "no samples": (changed(latencies([])), "no samples"),
        "negative": (changed(latencies([-1.0])), "zero or negative"),
        "text samples": (changed(latencies(["1"])), "not a number"),
        "NaN": (changed(latencies([float("nan")])), "a sample is NaN"),
        "huge": (
            changed(lambda m: m["metrics"][level].update(host_memory_peak_mb=10**400)),
            "",
        ),
        "a batch size that is none": (
            changed(lambda m: m["definition"].update(batch_size="four")),
            "batch_size is no count",
        ),
        "a zero byte": (
            changed(lambda m: m["definition"].update(benchmark_name="a\0b")),
            "benchmark holds a zero byte",
        ),
    }


DAMAGED = damaged()


@pytest.mark.parametrize(("bad", "reason"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_record_is_refused_by_its_place_and_the_rest_is_read(tmp_path, bad, reason):
    first, refusal, last = read(tmp_path, results(full_record(), bad, full_record()))
    assert refusal.place == "record 1"
    assert reason in refusal.reason
    assert first == last


@pytest.mark.parametrize(
    "trigger", [{}, {"timestamp": None}, {"timestamp": "now"}, {"timestamp": "2026-01-01"}]
)
def test_a_result_without_a_time_is_refused(tmp_path, trigger):
    document = results(full_record())
    document["runs"][0]["trigger"] = trigger
    (refusal,) = read(tmp_path, document)
    assert "time of its run" in refusal.reason


def write(path: Path, document) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_the_command_imports_and_a_second_import_changes_nothing(cbs, tmp_path):  # noqa: F811
    path = write(tmp_path / "a.json", results(full_record(), full_record(device="gpu")))
    code, out, _ = cbs("import", path, "--db", "h.sqlite")
    assert code == 0
    assert out.startswith("2 new results, 0 known, of 1 file; 0 refused")
    code, out, _ = cbs("import", path, path, "--db", "h.sqlite")
    assert code == 0
    assert out.startswith("0 new results, 4 known")
    code, out, _ = cbs("ls", "--db", "h.sqlite", "--json")
    assert {item["device"]: item["results"] for item in json.loads(out)} == {
        "host-cpu": 1,
        "gpu": 1,
    }


def test_a_file_that_grew_adds_what_is_new(cbs, tmp_path):  # noqa: F811
    path = write(tmp_path / "a.json", results(full_record()))
    cbs("import", path, "--db", "h.sqlite")
    write(path, results(full_record(), full_record("w2")))
    assert cbs("import", path, "--db", "h.sqlite")[1].startswith("1 new results, 1 known")


def test_what_is_refused_is_named_and_the_rest_imported(cbs, tmp_path):  # noqa: F811
    good = write(tmp_path / "good.json", results(full_record(), None))
    bad = tmp_path / "bad.json"
    bad.write_text("{\n\n!")
    code, out, err = cbs("import", bad, good, tmp_path / "none.json", "--db", "h.sqlite")
    assert code == 3
    assert out.startswith("1 new results, 0 known, of 1 file; 3 refused")
    said = err.splitlines()
    assert said[0].startswith(f"refused {bad}, line 3, column 1: is no JSON")
    assert said[1].startswith(f"refused {good}, record 1: ")
    assert said[2].startswith(f"refused {tmp_path / 'none.json'}: can not be read")
    assert cbs("import", bad, "--db", "h.sqlite")[0] == 1
