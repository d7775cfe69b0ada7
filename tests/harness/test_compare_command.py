"""`cbs compare` and `--baseline`, from the command line to the exit code."""

import json
import re
import subprocess
import sys

import pytest
from tests_support import run_cbs

TOYS = ("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy")
BUSY = (*TOYS, "-name", "models/TOY_BUSY/.+")
COUNTS = ("-w", "1", "-iter", "3")


@pytest.fixture(scope="module")
def measured(tmp_path_factory, environment):
    """A results file with one competitor and one process."""
    return run_cbs(
        *(*BUSY, *COUNTS), directory=tmp_path_factory.mktemp("measured"), environment=environment
    )


@pytest.fixture
def document(measured):
    """That file with six processes, with the samples of a quiet machine."""
    made = measured.document
    for record in made["benchmarks"]:
        metrics = record["metrics"]["framework_level"]
        [process] = metrics["processes"]
        [block] = process["blocks"]
        metrics["processes"] = []
        for number in range(6):
            latencies_ms = [2.0 + 0.001 * number] * 20
            blocks = [block | {"round": i, "latencies_ms": latencies_ms} for i in range(10)]
            metrics["processes"].append(process | {"blocks": blocks})
    return made


def _slowed(document, factor):
    """The same document with each sample multiplied."""
    slow = json.loads(json.dumps(document))
    for record in slow["benchmarks"]:
        metrics = record["metrics"]["framework_level"]
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
    command = [sys.executable, "-m", "comparative_benchmark", "compare", *paths, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_two_runs_of_the_same_thing_are_fine(document, tmp_path):
    done = _compare(tmp_path, document, document)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same" in done.stdout
    assert re.search(r"speed-up 1(\.0+)? \([\d.]+-[\d.]+\), geomean over 1 of 1 cases", done.stdout)


def test_a_slowdown_of_ten_percent_is_a_regression(document, tmp_path):
    done = _compare(tmp_path, document, _slowed(document, 1.1))
    assert done.returncode == 2, done.stdout
    assert "slower" in done.stdout


def test_a_speedup_is_no_regression(document, tmp_path):
    done = _compare(tmp_path, document, _slowed(document, 0.9))
    assert done.returncode == 0
    assert "faster" in done.stdout


def test_a_missing_case_is_missing_data(document, tmp_path):
    without = {**document, "benchmarks": []}
    assert _compare(tmp_path, document, without).returncode == 3


def test_json_and_markdown_say_the_same(document, tmp_path):
    slow = _slowed(document, 1.1)
    as_json = json.loads(_compare(tmp_path, document, slow, "--json").stdout)
    assert as_json["comparisons"][0]["verdict"] == "slower"
    markdown = _compare(tmp_path, document, slow, "--markdown").stdout
    title = r"\*\*speed-up 0\.9\d* \([\d.]+-[\d.]+\), geomean over 1 of 1 cases, 1 slower\*\*"
    assert re.match(title, markdown)


def _unchanged(document, **changes):
    """The same document as another run of the same compiled program."""
    made = json.loads(json.dumps(document))
    for record in made["benchmarks"]:
        metrics = record["metrics"]["framework_level"]
        for holder in (metrics["program"], *metrics["processes"]):
            holder["artifact_sha256"] = "a" * 64
    for item in (*made["runs"], *made["benchmarks"]):
        item["run_id"] += changes.get("suffix", "")
    made["runs"][0]["trigger"]["timestamp"] = changes.get("time", "2026-01-01T00:00:00+00:00")
    return made


def test_a_slowdown_of_an_unchanged_program_is_the_machines(document, tmp_path):
    old = _unchanged(document)
    new = _unchanged(_slowed(document, 1.1), suffix="-2", time="2026-01-03T00:00:00Z")
    done = _compare(tmp_path, old, new)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "unclear" in done.stdout
    assert "so the machine caused the +10 % difference" in " ".join(done.stdout.split())
    lines = [line for line in done.stdout.splitlines() if not line.startswith("Truth computed by")]
    *_, floor, withheld, last = lines
    assert floor == "noise floor: 1 unchanged program differs by 10 %"
    assert "--count-unchanged" in withheld
    assert "measured 2 days apart" in last
    plain = _compare(tmp_path, old, new, "--count-unchanged")
    assert plain.returncode == 2
    assert "slower" in plain.stdout


def test_other_package_versions_keep_the_verdict(document, tmp_path):
    old = _unchanged(document)
    new = _unchanged(_slowed(document, 1.1), suffix="-2")
    new["benchmarks"][0]["versions"]["numpy"] = "0.1"
    done = _compare(tmp_path, old, new)
    assert done.returncode == 2
    assert "noise floor" not in done.stdout


@pytest.mark.parametrize("content", ["", "{", "[]", '{"benchmarks": 1}'])
def test_what_is_no_results_file_is_refused_in_a_sentence(measured, tmp_path, content):
    (tmp_path / "bad.json").write_text(content)
    command = [sys.executable, "-m", "comparative_benchmark", "compare"]
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
    run = cbs_run(*BUSY, *COUNTS, "--baseline", "test_numpy:direct")
    assert "speed-up (98 %)" in run.out
    assert "baseline" in run.out


def test_a_baseline_that_does_not_run_is_refused_with_the_choices(cbs_run):
    run = cbs_run(*BUSY, "--baseline", "jax_xla:xla")
    assert run.code == 1
    assert "is not among the competitors: test_numpy:direct" in run.err
    assert not run.output.exists()


def test_the_usual_baseline_is_one_that_is_installed(cbs_run):
    backends = "test_absent,test_numpy:direct,test_numpy:direct+gambles"
    # Fixed counts have no usual baseline. A competitor may be unsteady: the table is the same.
    run = cbs_run(*BUSY, "--backend", backends, "--processes", "1", unsteady=2)
    assert "speed-up (98 %)" in run.out
    assert (
        "Other backends are not installed: test_absent (pip install a-module-that-is-missing).\n"
        in run.out
    )
    assert run.code in (0, 1), run.out + run.err
