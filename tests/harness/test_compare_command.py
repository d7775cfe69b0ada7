"""`cbs compare` and `--baseline`, from the command line to the exit code."""

import json
import subprocess
import sys

import pytest
from tests_support import run_cbs

TOYS = ("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy", "--processes", "3")


@pytest.fixture(scope="module")
def measured(tmp_path_factory, environment):
    """A results file with one competitor, of 2 ms, in three processes."""
    return run_cbs(
        *(*TOYS, "-name", "models/TOY_BUSY/.+"),
        directory=tmp_path_factory.mktemp("measured"),
        environment=environment,
    )


def _slowed(document, factor):
    """The same document with each sample multiplied."""
    slow = json.loads(json.dumps(document))
    for record in slow["benchmarks"]:
        metrics = record["metrics"]["framework_level"]
        metrics["latencies_ms"] = [factor * value for value in metrics["latencies_ms"]]
        for process in metrics["processes"]:
            for block in process["blocks"]:
                block["latencies_ms"] = [factor * value for value in block["latencies_ms"]]
    return slow


def _compare(tmp_path, old, new, *options):
    paths = []
    for name, document in (("old", old), ("new", new)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(document))
        paths.append(str(path))
    command = [sys.executable, "-m", "comparative_benchmark.cli", "compare", *paths, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_two_runs_of_the_same_thing_are_fine(measured, tmp_path):
    done = _compare(tmp_path, measured.document, measured.document)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same" in done.stdout
    assert "geomean 1 over 1 of 1 cases" in done.stdout


def test_a_slowdown_of_ten_percent_is_a_regression(measured, tmp_path):
    done = _compare(tmp_path, measured.document, _slowed(measured.document, 1.1))
    assert done.returncode == 2, done.stdout
    assert "slower" in done.stdout


def test_a_speedup_is_no_regression(measured, tmp_path):
    done = _compare(tmp_path, measured.document, _slowed(measured.document, 0.9))
    assert done.returncode == 0
    assert "faster" in done.stdout


def test_a_missing_case_is_missing_data(measured, tmp_path):
    without = {**measured.document, "benchmarks": []}
    assert _compare(tmp_path, measured.document, without).returncode == 3


def test_json_and_markdown_say_the_same(measured, tmp_path):
    slow = _slowed(measured.document, 1.1)
    as_json = json.loads(_compare(tmp_path, measured.document, slow, "--json").stdout)
    assert as_json["comparisons"][0]["verdict"] == "slower"
    markdown = _compare(tmp_path, measured.document, slow, "--markdown").stdout
    assert markdown.startswith("**geomean 1.1 over 1 of 1 cases, 1 slower**")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"benchmarks": 1}'])
def test_what_is_no_results_file_is_refused_in_a_sentence(measured, tmp_path, content):
    (tmp_path / "bad.json").write_text(content)
    command = [sys.executable, "-m", "comparative_benchmark.cli", "compare"]
    done = subprocess.run(
        [*command, str(measured.output), str(tmp_path / "bad.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "bad.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_ratios_are_against_the_baseline(cbs_run):
    run = cbs_run(*TOYS, "-name", "models/TOY_BUSY/.+", "--baseline", "test_numpy:direct")
    assert "x test_numpy:direct (98 %)" in run.out
    assert "baseline" in run.out


def test_a_baseline_that_does_not_run_is_refused_with_the_choices(cbs_run):
    run = cbs_run(*TOYS, "-name", "models/TOY_BUSY/.+", "--baseline", "jax_xla:xla")
    assert run.code == 1
    assert "is not among the competitors: test_numpy:direct" in run.err
    assert not run.output.exists()
