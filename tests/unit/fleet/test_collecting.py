"""Merging results files of jobs into one."""

import json

import pytest
from spool_support import TRIALS, document, fleet_of, units

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet import collecting
from comparative_benchmark.fleet.planning import duration_key, plan_jobs
from comparative_benchmark.fleet.spool import Attempt, End, Spool
from comparative_benchmark.results.results_file import ResultsFile, read_document


@pytest.fixture
def plan(tmp_path):
    return plan_jobs(fleet_of(tmp_path), units(3), revision="r", campaign="")


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path / "spool")
    spool.create()
    return spool


@pytest.fixture
def collect(plan, spool, tmp_path):
    return lambda: collecting.collect(plan, spool, tmp_path / "out" / "all.json")


@pytest.fixture
def output(tmp_path):
    return tmp_path / "out" / "all.json"


def store(spool, key, number=0, *, run_id=None, failed=0, **where):
    """Stores the results of an attempt; its first trials failed."""
    allocation = {
        "fleet": "f",
        "campaign": "",
        "machine_class": "any",
        "job": key,
        "node": "n",
        "engine": "local",
        "environment_sha256": "0" * 64,
        "attempt": number,
        **where,
    }
    plain = document(run_id or f"{key}-{number}", allocation)
    for result in plain["benchmarks"][:failed]:
        result |= {"status": "failed", "phase": "compile", "reason": "x", "traceback": None}
        [metrics] = result["metrics"].values()
        for name in [name for name in metrics if "latenc" in name]:
            del metrics[name]
        metrics["error"] = "failed in compile: x"
    spool.result_file(f"{key}.{number}").write_text(json.dumps(plain, indent=1))
    return plain


def run_ids(output):
    found = read_document(output)
    assert {result.run_id for result in found.benchmarks} == {run.run_id for run in found.runs}
    return sorted(run.run_id for run in found.runs)


def test_twice_is_once(plan, spool, collect, output):
    keys = [job.key for job in plan.jobs]
    store(spool, keys[0])
    done = collect()
    assert (done.results, done.known, done.jobs) == (TRIALS, 0, {keys[0]})
    store(spool, keys[1])
    done = collect()
    assert (done.results, done.known, done.jobs) == (TRIALS, TRIALS, set(keys[:2]))
    content = output.read_bytes()
    done = collect()
    assert (done.results, done.known, done.jobs) == (0, 2 * TRIALS, set(keys[:2]))
    assert output.read_bytes() == content
    assert run_ids(output) == sorted(f"{key}-0" for key in keys[:2])
    assert [path.name for path in output.parent.iterdir() if path.suffix != ".lock"] == ["all.json"]


def test_without_results_there_is_no_file(collect, output):
    assert collect().results == 0
    assert not output.exists()


def test_results_are_unchanged(plan, spool, collect, output):
    plain = store(spool, plan.jobs[0].key)
    collect()
    assert json.loads(output.read_bytes()) == plain
    # Appended results are on separate lines.
    assert len(output.read_text().splitlines()) == TRIALS + 2


def test_a_run_can_be_appended_afterwards(plan, spool, collect, output):
    store(spool, plan.jobs[0].key)
    collect()
    environment = read_document(output).execution_environment
    ResultsFile(output).start_run(execution_environment=environment, command=["cbs"])
    assert len(read_document(output).runs) == 2
    store(spool, plan.jobs[1].key)
    assert collect().known == TRIALS
    assert len(read_document(output).runs) == 3


@pytest.mark.parametrize("at_once", [False, True])
def test_the_first_of_two_complete_attempts_counts(plan, spool, collect, output, at_once):
    key = plan.jobs[0].key
    store(spool, key, 1)
    if not at_once:
        collect()
    store(spool, key, 0)
    collect()
    assert run_ids(output) == [f"{key}-{0 if at_once else 1}"]


@pytest.mark.parametrize("at_once", [False, True])
def test_a_failure_and_a_later_success_are_kept(plan, spool, collect, output, at_once):
    key = plan.jobs[0].key
    store(spool, key, 0, failed=1)
    if not at_once:
        collect()
    store(spool, key, 1)
    collect()
    collect()
    assert run_ids(output) == [f"{key}-0", f"{key}-1"]
    assert len(read_document(output).benchmarks) == 2 * TRIALS


def test_an_attempt_that_continued_a_run_adds_it_once(plan, spool, collect, output):
    key = plan.jobs[0].key
    store(spool, key, 0, run_id="same", failed=1)
    store(spool, key, 1, run_id="same", failed=1)
    assert collect().results == TRIALS
    assert run_ids(output) == ["same"]


def test_restarts_and_shared_nodes_are_counted(plan, spool, collect):
    keys = [job.key for job in plan.jobs]
    store(spool, keys[0], 0, restarts=1, exclusive=True)
    store(spool, keys[1], 1, exclusive=False)
    store(spool, keys[2], 0)
    done = collect()
    assert done.restarted == set(keys[:2])
    assert done.shared == TRIALS


def test_jobs_of_other_plans_are_foreign(spool, collect, output):
    store(spool, "f" * 32)
    done = collect()
    assert done.foreign == [f"results/{'f' * 32}.0.json"]
    assert not output.exists()
    assert spool.result_file(f"{'f' * 32}.0").exists()


def test_a_damaged_result_is_set_aside(plan, spool, collect):
    key = plan.jobs[0].key
    path = spool.result_file(f"{key}.0")
    path.write_text("{")
    done = collect()
    assert list(done.damaged) == [f"results/{path.name}"]
    assert done.jobs == set()
    assert path.with_name(f"{path.name}.damaged").exists()
    assert collect().damaged == {}
    assert collect().foreign == []


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"runs": [], "benchmarks": 7}'])
def test_another_file_in_the_place_of_the_output_stays(plan, spool, collect, output, content):
    store(spool, plan.jobs[0].key)
    output.parent.mkdir()
    output.write_text(content)
    with pytest.raises(UsageError, match="is not a results file"):
        collect()
    assert output.read_text() == content


def test_a_folder_in_the_place_of_the_output(plan, spool, collect, output):
    store(spool, plan.jobs[0].key)
    output.mkdir(parents=True)
    with pytest.raises(UsageError, match="cannot be written"):
        collect()


def test_an_output_that_another_collector_holds(monkeypatch, plan, spool, collect, output):
    monkeypatch.setattr(collecting, "_LOCK_TIMEOUT_S", 0.05)
    store(spool, plan.jobs[0].key)
    output.parent.mkdir()
    with (
        collecting.FileLock(output.parent / f".{output.name}.lock"),
        pytest.raises(UsageError, match="is locked by another process"),
    ):
        collect()


def test_the_rest_of_a_killed_collector_is_removed(plan, spool, collect, output):
    store(spool, plan.jobs[0].key)
    left = output.parent / f".{output.name}.collecting"
    left.mkdir(parents=True)
    (left / "runs").write_text("rest")
    collect()
    assert not left.exists()
    assert len(run_ids(output)) == 1


def test_durations_of_new_results_are_kept(plan, spool, collect):
    first, second, third = plan.jobs
    for job in (first, second):
        store(spool, job.key)
        spool.end(Attempt(job.key, 0), End(ending="done", wall_s=12.5))
    spool.end(Attempt(third.key, 0), End(ending="failed", wall_s=3.0))
    collect()
    names = [duration_key(job.machine_class, job.arguments) for job in plan.jobs]
    assert spool.durations_s() == dict.fromkeys(names[:2], 12.5)
