"""`--env`, `--cpus`, `--compile-only` and budgets, by the command line."""

import json
import os
import subprocess
import sys
import sysconfig
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

pytestmark = pytest.mark.alone

SCHEMA = "schema/results.v1.schema.json"
TOYS = ("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy")
ONE = (*TOYS, "-name", "models/TOY_BUSY/.+")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A second environment with the packages of this one."""
    folder = tmp_path_factory.mktemp("other")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    purelib = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # `site` obeys the links in our folder, too, as those of editable installs.
    ours = sysconfig.get_path("purelib")
    (purelib / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    return folder


def test_two_environments_race_and_get_a_verdict(cbs_run, other):
    run = cbs_run(*ONE, "--env", f"old={sys.executable},new={other}", "--processes", "3")
    assert run.code == 0, run.err
    records = {
        record["definition"]["environment"]["name"]: record for record in run.document["benchmarks"]
    }
    assert list(records) == ["old", "new"]
    races = {name: record["metrics"]["framework_level"]["race"] for name, record in records.items()}
    assert races["old"]["id"] == races["new"]["id"]
    row = next(line for line in run.out.splitlines() if "test_numpy:direct@new" in line)
    assert any(verdict in row for verdict in ("faster", "slower", "same", "unclear"))
    [environment] = [run["execution_environment"] for run in run.document["runs"]]
    assert environment["environments"]["new"]["python"].startswith(str(other))


def test_environments_are_told_apart_on_resume(cbs_run, other):
    fixed = ("-w", "0", "-iter", "1")
    cbs_run(*ONE, *fixed, "--env", f"old={sys.executable}")
    both = f"old={sys.executable},new={other}"
    again = cbs_run(*ONE, *fixed, "--env", both, "--resume")
    assert len(again.document["benchmarks"]) == 2, again.err


def test_an_environment_that_can_not_serve_is_refused_before_anything_runs(cbs_run, tmp_path):
    run = cbs_run(*ONE, "--env", f"old={tmp_path}/none")
    assert run.code == 1
    assert "no interpreter there" in run.err
    assert not run.output.exists()


def test_compile_only_measures_cold_and_warm_in_turns(cbs_run):
    run = cbs_run(*ONE, "--compile-only", "--processes", "2")
    assert run.code == 0, run.err
    [record] = run.document["benchmarks"]
    metrics = record["metrics"]["framework_level"]
    assert record["status"] == "ok"
    assert metrics["stop_reason"] == "compile_only"
    assert len(metrics["compile"]["cold_ms"]) == len(metrics["compile"]["warm_ms"]) == 2
    assert [process["cold"] for process in metrics["compile"]["processes"]] == [True, False] * 2
    assert "latencies_ms" not in metrics
    assert metrics["verification"]["passed"] is True
    assert "cold s" in run.out


@pytest.mark.parametrize(
    "excluded", [("-w", "1"), ("-iter", "1"), ("--run-in-process",), ("--profile",)]
)
def test_compile_only_excludes_what_measures(cbs_run, excluded):
    run = cbs_run(*ONE, "--compile-only", *excluded)
    assert run.code == 1
    assert "--compile-only excludes" in run.err


def test_workers_are_pinned(cbs_run):
    cpu = max(os.sched_getaffinity(0))
    run = cbs_run(*ONE, "-w", "0", "-iter", "1", "--cpus", str(cpu))
    assert run.code == 0, run.err
    [started] = run.document["runs"]
    host = started["execution_environment"]["host"]
    assert host["pinned_cpus"] == [cpu]
    assert host["threads"] == 1
    [record] = run.document["benchmarks"]
    notes = record["metrics"]["framework_level"]["program"]["notes"]
    assert notes["cpus"] == [cpu]


def test_cpus_that_are_not_there_are_refused(cbs_run):
    run = cbs_run(*ONE, "--cpus", "4000")
    assert run.code == 1
    assert "may not use CPU 4000" in run.err


def test_a_budget_of_each_trial_leaves_the_pilot_and_nothing_else(cbs_run):
    run = cbs_run(*TOYS, "-name", "models/TOY_(NONE|BUSY)/.+", "--trial-budget", "0.001")
    assert run.code == 0, run.err
    for record in run.document["benchmarks"]:
        metrics = record["metrics"]["framework_level"]
        assert len(metrics["processes"]) == 3
        assert metrics["stop_reason"] in ("precision", "noise", "budget")
        assert all(p["stop_reason"] for p in metrics["processes"])
        assert all(0 < p["timer_ns"] < 1e6 for p in metrics["processes"])


def test_a_profile_is_kept_of_what_was_measured_and_a_time_line_of_all(cbs_run):
    run = cbs_run(
        *(*TOYS, "-name", "models/TOY_(NONE|BUSY|RAISES)/.+", "--processes", "2", "--profile"),
    )
    records = {record["definition"]["model"]: record for record in run.document["benchmarks"]}
    assert "profile" not in records["TOY_RAISES"]
    for model in ("TOY_NONE", "TOY_BUSY"):
        profile = records[model]["profile"]
        assert profile["error"] is None
        kept = [Path(profile["directory"]) / name for name in profile["files"]]
        assert kept
        assert all(file.stat().st_size for file in kept)
    events = json.loads(Path(records["TOY_NONE"]["timeline"]).read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert sum("TOY_NONE" in name for name in names) == 2
    assert "profiles:" in run.err
    assert all(record["timeline"].endswith(".timeline.json") for record in records.values())
    schema = json.loads(files("comparative_benchmark.results").joinpath(SCHEMA).read_text())
    jsonschema.validate(run.document, schema)
