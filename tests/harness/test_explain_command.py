"""`cbs explain` from a results file to its table, with workers that take profiles."""

import json
import subprocess
import sys

import pytest
from tests_support import run_cbs

SUITE = ("--suite", "cbs_test_plugin.suite")
SLOW = "test_numpy:direct+gambles"
MEDIANS_MS = {"test_numpy:direct": 2.0, SLOW: 3.25}


@pytest.fixture(scope="module")
def measured(tmp_path_factory, environment):
    """A results file of two competitors whose latencies are replaced by fixed ones."""
    run = run_cbs(
        *(*SUITE, "--backend", f"test_numpy:direct,{SLOW}"),
        *("-name", "models/TOY_BUSY/.+", "-w", "1", "-iter", "3"),
        directory=tmp_path_factory.mktemp("measured"),
        environment=environment,
    )
    document = run.document
    for record in document["benchmarks"]:
        definition, metrics = record["definition"], record["metrics"]["framework_level"]
        median_ms = MEDIANS_MS[f"{definition['backend']}:{definition['compiler']}"]
        blocks = [block for process in metrics["processes"] for block in process["blocks"]]
        for holder in (metrics, *blocks):
            holder["latencies_ms"] = [median_ms] * 3
        metrics["median_latency_ms"] = median_ms
    run.output.write_text(json.dumps(document))
    return run


@pytest.fixture
def explain(measured, environment):
    """Runs `cbs explain` on a results file, by default on the measured one."""

    def run(*arguments, path=measured.output):
        command = [sys.executable, "-m", "comparative_benchmark", "explain", str(path)]
        return subprocess.run(
            [*command, *SUITE, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    return run


def test_what_is_not_kept_is_profiled_once_and_the_results_stay(measured, explain):
    before = measured.output.read_bytes()
    first = explain("--json")
    assert first.returncode == 0, first.stderr
    assert first.stderr.count("profiling  ") == 2
    found = json.loads(first.stdout)
    assert found["slow"]["competitor"] == SLOW
    waited = {row["kind"]: row["lost_ms"] for row in found["rows"]}["runtime"]
    assert waited in (pytest.approx(1.0), pytest.approx(1.25))
    assert found["lost_ms"] == pytest.approx(sum(row["lost_ms"] for row in found["rows"]))
    again = explain()
    assert "profiling  " not in again.stderr
    assert f"{SLOW} ms" in again.stdout
    assert measured.output.read_bytes() == before


def test_a_worker_that_fails_leaves_one_line(measured, explain):
    document = measured.document
    for record in document["benchmarks"]:
        record["definition"]["workload"]["digest"] = "0" * 64
    other = measured.output.with_name("other.json")
    other.write_text(json.dumps(document))
    done = explain("--again", path=other)
    assert done.returncode == 1
    assert "has changed since it was measured" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
