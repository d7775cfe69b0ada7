"""Each export is valid by its published schema and for its readers."""

import csv
import io
import json
import os
import re
import statistics
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import PurePosixPath

import msgspec
import pytest
from asv.results import Results
from formats_support import REVISION, own_results, validate, write_results
from hypothesis import assume, given, settings

from comparative_benchmark.reporting.formats import EXPORTS
from comparative_benchmark.reporting.formats.interface import CARRIER, exporter
from comparative_benchmark.reporting.history import results_files
from comparative_benchmark.reporting.history.rows import FormatError, PortableResult


@pytest.fixture(scope="module")
def results(tmp_path_factory, make_trial, finished):
    path = tmp_path_factory.mktemp("formats") / "results.json"
    write_results(path, make_trial, finished)
    found = results_files.read(path)
    assert not found.refused
    return found.results


def export(name, results):
    [(file, content)] = exporter(name)(results).files.items()
    assert file == ""
    return content


def failed(results):
    return [result for result in results if result.status != "ok"]


@pytest.mark.slow
def test_every_format_says_what_it_can_not_hold(results):
    for name in EXPORTS:
        remarks = exporter(name)(results).remarks
        assert any("no time): 7 of 10" in remark for remark in remarks), name
        assert any("(compile only): 1 of 10" in remark for remark in remarks), name


def test_torchbench_is_valid_and_a_status_stands_for_a_number(results):
    document = json.loads(export("torchbench", results))
    validate(document, "torchbench-metrics.schema.json")
    pattern = "model=(.*), test=(.*), device=(.*), bs=(.*), extra_args=(.*), metric=(.*)"
    metrics = {re.fullmatch(pattern, key).groups(): v for key, v in document["metrics"].items()}
    values = {key[4]: value for key, value in metrics.items() if key[5] == "latencies"}
    assert values["['--backend=jax_xla', '--compiler=xla']"] == results[0].latency_ms
    texts = {value for value in values.values() if isinstance(value, str)}
    expected = {result.status for result in failed(results)} - {"unsupported"}
    assert texts == expected | {"not_implemented"}
    # Failures have no number at all.
    broken = {key[:5] for key, value in metrics.items() if isinstance(value, str)}
    assert not [k for k, v in metrics.items() if k[:5] in broken and not isinstance(v, str)]


@pytest.mark.parametrize(
    ("model", "tags", "key"),
    [
        ("resnet50_EVAL_PT_BATCH4", ("torchbench", "eval"), "model=resnet50, test=eval"),
        ("my_net_TRAIN_PT", ("torchbench", "train"), "model=my_net, test=train"),
        ("BERT_TRAIN_SGD_FP32", ("sgd",), "model=BERT_TRAIN_SGD_FP32, test=train"),
        ("BERT_FP32", (), "model=BERT_FP32, test=eval"),
    ],
)
def test_torchbench_finds_its_folders_by_their_names_and_tests(results, model, tags, key):
    renamed = msgspec.structs.replace(results[0], model=model, tags=tags)
    keys = json.loads(export("torchbench", [renamed]))["metrics"]
    assert keys
    assert all(found.startswith(f"{key}, device=") for found in keys)


def test_oss_v3_is_valid_line_by_line_and_the_exact_values_are_there(results):
    lines = export("oss-v3", results).decode().splitlines()
    records = [json.loads(line) for line in lines]
    for record in records:
        validate(record, "oss-benchmark-v3.schema.json")
    first = records[0]["metric"]
    assert first["name"] == "latency (ms)"
    medians = [statistics.median(process) for process in results[0].samples_ms]
    assert first["benchmark_values"] != medians
    assert first["benchmark_values"] == pytest.approx(medians, rel=1e-7)
    assert json.loads(first["extra_info"]["exact_values"]) == medians
    assert not {"repo", "head_sha", "workflow_id", "job_id"} & set(records[0])
    for result in failed(results):
        [record] = [r for r in records if r["model"]["backend"] == result.competitor]
        assert record["metric"]["benchmark_values"] == []
        assert json.loads(record["metric"]["extra_info"]["benchmark_values"]) == [result.status]
        assert record["benchmark"]["extra_info"]["status"] == result.status


def test_values_beyond_float32_are_kept_beside(results):
    huge = msgspec.structs.replace(results[0], host_memory_peak_mb=1e60)
    lines = export("oss-v3", [huge]).decode().splitlines()
    [metric] = [m for m in (json.loads(x)["metric"] for x in lines) if "memory" in m["name"]]
    assert metric["benchmark_values"] == [3.4028234663852886e38]
    assert json.loads(metric["extra_info"]["exact_values"]) == [1e60]


def comparable(entry):
    """The conditions of Google Benchmark's compare.py for an entry."""
    return "time_unit" in entry and "real_time" in entry and "cpu_time" in entry


def test_google_benchmark_is_valid_and_its_compare_leaves_out_what_failed(results):
    document = json.loads(export("google-benchmark", results))
    validate(document, "google-benchmark.schema.json")
    entries = document["benchmarks"]
    ranked = [entry for entry in entries if comparable(entry)]
    assert len(ranked) == 4
    assert [entry["repetition_index"] for entry in ranked[:3]] == [0, 1, 2]
    assert ranked[0]["real_time"] == statistics.fmean(results[0].samples_ms[0])
    assert ranked[0]["iterations"] == 4
    broken = [entry for entry in entries if not comparable(entry)]
    assert [entry["label"] for entry in broken] == [r.status for r in failed(results)]
    assert all(entry["error_occurred"] and entry["error_message"] for entry in broken)


def test_pytest_benchmark_is_valid_and_its_compare_reads_it(results, tmp_path):
    pytest.importorskip("pytest_benchmark")
    content = export("pytest-benchmark", results)
    document = json.loads(content)
    validate(document, "pytest-benchmark.schema.json")
    assert len(document["benchmarks"]) == 2
    carried = {item["status"] for item in document[CARRIER]["results"] if "status" in item}
    assert carried >= {result.status for result in failed(results)}
    (tmp_path / "results.json").write_bytes(content)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest_benchmark", "compare", "results.json"),
            *("--csv=table.csv", "--columns=min,median,max,rounds,iqr,outliers"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "jax_xla:xla" in done.stdout
    assert "wrong_output" not in done.stdout
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text())))
    pooled = [value / 1e3 for process in results[0].samples_ms for value in process]
    [row] = [row for row in rows if "jax_xla" in row["name"]]
    assert float(row["median"]) == statistics.median(pooled)
    assert int(row["rounds"]) == 12


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 9, 40])
def test_statistics_are_those_that_pytest_benchmark_works_out(count):
    stats = pytest.importorskip("pytest_benchmark.stats")
    samples = tuple(1.0 + (7 * i % 11) / 10 + (100 if i == 8 else 0) for i in range(count))
    result = PortableResult(case="a", backend="b", samples_ms=(samples,), latency_ms=1.0)
    document = json.loads(export("pytest-benchmark", [result]))
    theirs = stats.Stats()
    for sample in samples:
        theirs.update(sample / 1e3)
    ours, due = document["benchmarks"][0]["stats"], theirs.as_dict()
    assert ours["outliers"] == due.pop("outliers")
    assert {name: ours[name] for name in due} == pytest.approx(due, rel=1e-12)


def test_asv_is_valid_and_is_read_column_by_column(results):
    exported = exporter("asv")(results)
    documents = {PurePosixPath(name): json.loads(c) for name, c in exported.files.items()}
    benchmarks = documents.pop(PurePosixPath("benchmarks.json"))
    validate(benchmarks, "asv-results.v2.schema.json", "benchmarks")
    machine = documents.pop(PurePosixPath("a-machine/machine.json"))
    validate(machine, "asv-results.v2.schema.json", "machine")
    [(path, document)] = documents.items()
    validate(document, "asv-results.v2.schema.json")
    assert path.parts[0] == machine["machine"] == document["params"]["machine"]
    assert path.name.startswith(f"{REVISION[:8]}-{document['env_name']}")
    assert set(document["results"]) == set(benchmarks) - {"version"}
    [name] = [key for key in document["results"] if "JAX" in key]
    row = dict(zip(document["result_columns"], document["results"][name], strict=False))
    assert row["version"] == benchmarks[name]["version"]
    assert row["params"] == benchmarks[name]["params"]
    assert len(row["result"]) == len(row["params"][0]) == len(failed(results)) + 1
    assert row["result"][0] == results[0].latency_ms / 1e3
    # asv takes null for a failure.
    assert row["result"][1:] == [None] * len(failed(results))
    assert row["samples"][0] == [v / 1e3 for process in results[0].samples_ms for v in process]
    assert row["samples"][1:] == [None] * len(failed(results))


def test_asv_itself_publishes_it(results, tmp_path):
    repository, folder, page = (tmp_path / name for name in ("repository", "results", "page"))
    revision = repository_with_a_commit(repository)
    known = [msgspec.structs.replace(result, git_revision=revision) for result in results]
    for name, content in exporter("asv")(known).files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    [path] = folder.glob(f"*/{revision[:8]}-*.json")
    read = Results.load(str(path))
    [name] = [key for key in read.get_all_result_keys() if "JAX" in key]
    parameters = read.get_result_params(name)
    assert read.get_result_value(name, parameters)[0] == known[0].latency_ms / 1e3
    stats = read.get_result_stats(name, parameters)
    assert stats[0]["q_25"] <= stats[0]["q_75"]
    assert not any(stats[1:])

    asked = {"version": 1, "project": "suite", "repo": str(repository), "branches": ["main"]}
    places = {"results_dir": str(folder), "html_dir": str(page), "env_dir": str(tmp_path / "env")}
    (tmp_path / "asv.conf.json").write_text(json.dumps(asked | places))
    done = subprocess.run(
        [sys.executable, "-m", "asv", "publish"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    index = json.loads((page / "index.json").read_text())
    assert index["benchmarks"][name]["code"] == known[0].case
    files = [path for path in page.glob(f"graphs/**/{name}.json") if "summary" not in path.parts]
    [[[_revision, values]]] = [json.loads(path.read_text()) for path in files]
    assert values[0] == pytest.approx(known[0].latency_ms / 1e3, rel=1e-5)
    assert values[1:] == [None] * (len(values) - 1)


def repository_with_a_commit(path):
    """Makes a git repository, and returns the revision of its only commit."""
    path.mkdir()

    def git(*arguments):
        given = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments)
        return subprocess.run(given, cwd=path, check=True, capture_output=True, text=True).stdout

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "a")
    return git("rev-parse", "HEAD").strip()


def test_asv_says_when_there_is_no_revision_to_publish(results):
    remarks = exporter("asv")(
        [msgspec.structs.replace(r, git_revision=None) for r in results]
    ).remarks
    assert any("git revision is unknown" in remark for remark in remarks)
    dirty = [msgspec.structs.replace(r, git_revision=f"{REVISION}-dirty") for r in results]
    assert any("had uncommitted changes" in remark for remark in exporter("asv")(dirty).remarks)


def test_csv_keeps_every_digit(results):
    rows = list(csv.DictReader(io.StringIO(export("csv", results).decode())))
    assert [row["status"] for row in rows] == [result.status for result in results]
    assert float(rows[0]["latency_ms"]) == results[0].latency_ms
    assert json.loads(rows[0]["samples_ms"]) == [list(p) for p in results[0].samples_ms]
    assert all(row["latency_ms"] == "" for row in rows if row["status"] != "ok")


def test_parquet_is_read_back_by_pyarrow(results):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO(export("parquet", results)))
    rows = table.to_pylist()
    assert [row["case"] for row in rows] == [result.case for result in results]
    assert [row["latency_ms"] for row in rows] == [result.latency_ms for result in results]
    assert rows[0]["samples_ms"] == [list(process) for process in results[0].samples_ms]
    assert dict(rows[0]["versions"]) == results[0].versions
    assert json.loads(rows[0]["host"]) == dict(results[0].host)
    assert str(table.schema.field("latency_ms").type) == "double"


# The elements of junit-10.xsd of Jenkins' xUnit plugin, shared by pytest and Maven's Surefire.
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testsuite", "properties", "testcase", "system-out", "system-err"},
    "properties": {"property"},
    "property": set(),
    "testcase": {"skipped", "error", "failure", "system-out", "system-err"},
    **{name: set() for name in ("skipped", "error", "failure", "system-out")},
}
ATTRIBUTES = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, set()),
    "testsuite": (
        {"group", "time", "skipped", "timestamp", "hostname", "id", "package"},
        {"name", "tests", "failures", "errors"},
    ),
    "properties": (set(), set()),
    "property": (set(), {"name", "value"}),
    "testcase": ({"time", "classname", "group"}, {"name"}),
    **{name: ({"type", "message"}, set()) for name in ("skipped", "error", "failure")},
    "system-out": (set(), set()),
}


def check_junit(element):
    optional, required = ATTRIBUTES[element.tag]
    assert required <= set(element.attrib) <= optional | required, element.tag
    if "time" in element.attrib:
        assert re.fullmatch(r"[0-9]*(\.[0-9]*)?", element.attrib["time"])
    for child in element:
        assert child.tag in CHILDREN[element.tag], f"{child.tag} in {element.tag}"
        check_junit(child)


def test_junit_keeps_to_the_schema_and_counts(results):
    root = ET.fromstring(export("junit", results))
    check_junit(root)
    [suite] = root
    cases = suite.findall("testcase")
    assert int(suite.get("tests")) == len(cases) == len(results)
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure")) == 1
    assert int(suite.get("errors")) == len(suite.findall("testcase/error")) == 5
    assert int(suite.get("skipped")) == len(suite.findall("testcase/skipped")) == 1
    [failure] = suite.findall("testcase/failure")
    assert failure.get("type") == "wrong_output"
    # What XML cannot hold is replaced; the rest is escaped, and comes back.
    assert failure.get("message").startswith("wrong_output in verify: a <reason> & \ufffd[31m")
    shown = cases[0].findtext("system-out")
    assert f"latency_ms: {results[0].latency_ms!r} (95 %:" in shown
    assert "latency_ms" not in "".join(c.findtext("system-out") for c in cases[3:])


@pytest.mark.parametrize(
    "name", [n for n in EXPORTS if n not in ("oss-v3", "csv", "parquet", "junit")]
)
def test_formats_of_one_run_refuse_two(results, name):
    other = msgspec.structs.replace(results[0], run_id="another", case="b")
    with pytest.raises(FormatError, match=r"can contain only one run, got 2.*--run"):
        exporter(name)([*results, other])


@pytest.mark.parametrize("name", ["torchbench", "google-benchmark", "pytest-benchmark", "asv"])
def test_two_results_of_one_name_are_refused(results, name):
    with pytest.raises(FormatError, match="two results are"):
        exporter(name)([results[0], results[0]])


SCHEMAS = {
    "torchbench": "torchbench-metrics.schema.json",
    "google-benchmark": "google-benchmark.schema.json",
    "pytest-benchmark": "pytest-benchmark.schema.json",
}


def check_any(name, files):
    """Validates an export of any results."""
    if name in SCHEMAS:
        validate(json.loads(files[""]), SCHEMAS[name])
    elif name == "oss-v3":
        # No text of a result may end a line of its record.
        for line in files[""].decode().removesuffix("\n").split("\n"):
            validate(json.loads(line), "oss-benchmark-v3.schema.json")
    elif name == "asv":
        for path, content in files.items():
            # By its whole name: an environment may be called "...machine", and so its file.
            definition = {"benchmarks.json": "benchmarks", "machine.json": "machine"}.get(
                PurePosixPath(path).name
            )
            validate(json.loads(content), "asv-results.v2.schema.json", definition)
    elif name == "junit":
        check_junit(ET.fromstring(files[""]))


@pytest.mark.parametrize("name", EXPORTS)
@settings(max_examples=25)
@given(results=own_results())
def test_whatever_a_result_holds_its_export_is_valid(name, results):
    if name == "parquet":
        pytest.importorskip("pyarrow")
    try:
        files = exporter(name)(results).files
    except FormatError as error:
        assume("two results are" not in str(error))
        raise
    check_any(name, files)


def test_a_package_may_have_the_name_of_asvs_own_file(results):
    named = [msgspec.structs.replace(r, versions={"0": "machine"}) for r in results[:1]]
    files = exporter("asv")(named).files
    assert [str(p) for p in files if str(p).endswith("-0machine.json")]
    check_any("asv", files)
