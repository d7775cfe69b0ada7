"""`cbs explain` from a run to its table, through workers of its own."""

import json
import subprocess
import sys

import pytest
from tests_support import run_cbs

pytestmark = pytest.mark.alone

SUITE = ("--suite", "cbs_test_plugin.suite")


@pytest.fixture(scope="module")
def measured(tmp_path_factory, environment):
    """A results file with a competitor of 2 ms, and one of 1 or 1.25 ms more."""
    return run_cbs(
        *(*SUITE, "--backend", "test_numpy:direct,test_numpy:direct+gambles"),
        *("-name", "models/TOY_BUSY/.+", "-w", "1", "-iter", "20"),
        directory=tmp_path_factory.mktemp("measured"),
        environment=environment,
    )


@pytest.fixture
def explain(measured, environment):
    """Runs `cbs explain` on that file."""

    def run(*arguments):
        command = [sys.executable, "-m", "comparative_benchmark", "explain", str(measured.output)]
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
    assert found["slow"]["competitor"] == "test_numpy:direct+gambles"
    waited = {row["kind"]: row["lost_ms"] for row in found["rows"]}["runtime"]
    assert waited in (pytest.approx(1.0), pytest.approx(1.25))
    assert found["lost_ms"] == pytest.approx(sum(row["lost_ms"] for row in found["rows"]))
    again = explain()
    assert "profiling  " not in again.stderr
    assert "test_numpy:direct+gambles ms" in again.stdout
    assert measured.output.read_bytes() == before


def test_a_worker_that_fails_leaves_one_line(measured, explain):
    document = measured.document
    for record in document["benchmarks"]:
        record["definition"]["workload"]["digest"] = "0" * 64
    other = measured.output.with_name("other.json")
    other.write_text(json.dumps(document))
    command = [
        sys.executable,
        "-m",
        "comparative_benchmark",
        "explain",
        str(other),
        "--again",
        *SUITE,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is not any more what was measured" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
