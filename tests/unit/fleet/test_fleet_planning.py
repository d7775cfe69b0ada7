"""Plans: jobs, their keys, and batches that fit the scheduler."""

import math
import re
from types import SimpleNamespace

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spool_support import fleet_of, units

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet import planning
from comparative_benchmark.fleet.description import MachineClass
from comparative_benchmark.fleet.planning import (
    batches_of,
    duration_key,
    load_plan,
    plan_jobs,
    save_plan,
    units_of,
)
from comparative_benchmark.request import RunRequest

CLASSES = (MachineClass(name="a", repeats=2), MachineClass(name="b", repeats=3, device="cuda"))


def on_both_devices(number):
    return [*units(number), *units(number, "cuda")]


def plan(folder, number=4, **changes):
    options = {"revision": "r", "campaign": "", **changes}
    return plan_jobs(fleet_of(folder, classes=CLASSES), on_both_devices(number), **options)


@pytest.fixture
def planned(monkeypatch):
    """Replaces the plan of a run; returns the digests of its workloads, for a test to change."""
    digests = ["1"]

    def plan_run(request, _):
        trials = [
            SimpleNamespace(
                workload=SimpleNamespace(digest=digest, label=f"w{digest}"),
                case=SimpleNamespace(name=f"models/{digest}"),
                competitor=f"iree:{request.device}",
            )
            for digest in digests
        ]
        return SimpleNamespace(trials=trials)

    monkeypatch.setattr(planning, "plan_run", plan_run)
    return digests


def test_a_job_for_each_unit_class_and_repeat(tmp_path):
    jobs = plan(tmp_path).jobs
    assert len(jobs) == len({job.key for job in jobs}) == 4 * (2 + 3)
    assert {(job.machine_class, job.repeat) for job in jobs} == {
        *(("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2))
    }


def test_the_same_plan_has_the_same_keys(tmp_path):
    assert plan(tmp_path) == plan(tmp_path)


@pytest.mark.parametrize("changes", [{"revision": "s"}, {"campaign": "night"}])
def test_another_revision_or_campaign_has_other_keys(tmp_path, changes):
    keys = plan(tmp_path).by_key().keys()
    assert not keys & plan(tmp_path, **changes).by_key().keys()


@pytest.mark.parametrize(
    "change", [{"digest": "1"}, {"competitors": ("a",)}, {"cases": ("models/other",)}]
)
def test_another_workload_or_competitor_has_another_key(tmp_path, change):
    fleet = fleet_of(tmp_path)
    [unit] = units(1)
    keys = {
        plan_jobs(fleet, [item], revision="r", campaign="").jobs[0].key
        for item in (unit, attrs.evolve(unit, **change))
    }
    assert len(keys) == 2


def test_a_label_does_not_change_a_key(tmp_path):
    [unit] = units(1)
    jobs = [
        plan_jobs(fleet_of(tmp_path), [item], revision="r", campaign="").jobs[0]
        for item in (unit, attrs.evolve(unit, label="renamed"))
    ]
    assert jobs[0].key == jobs[1].key


def test_arguments_select_exactly_the_cases(tmp_path):
    name = "models/A+(B)/x.[1]"
    [unit] = units(1)
    fleet = fleet_of(tmp_path, runs=(RunRequest(name="models/.+", device="host-cpu"),))
    item = attrs.evolve(unit, cases=(name, "models/C"))
    [job] = plan_jobs(fleet, [item], revision="r", campaign="").jobs
    pattern = job.arguments[job.arguments.index("-name") + 1]
    assert [bool(re.fullmatch(pattern, text)) for text in (name, "models/C", "models/AAB/x.1")] == [
        *(True, True, False)
    ]
    assert job.arguments[job.arguments.index("--backend") + 1] == "a,b"


def test_the_device_of_a_class_replaces_that_of_the_run(tmp_path):
    devices = {
        job.machine_class: job.arguments[job.arguments.index("-device") + 1]
        for job in plan(tmp_path).jobs
        if "-device" in job.arguments
    }
    assert devices == {"b": "cuda"}


def test_competitors_are_those_of_the_device_of_the_class(tmp_path, planned):
    fleet = fleet_of(tmp_path, classes=CLASSES)
    jobs = plan_jobs(fleet, units_of(fleet, print), revision="r", campaign="").jobs
    assert {
        (job.machine_class, job.arguments[job.arguments.index("--backend") + 1]) for job in jobs
    } == {("a", "iree:host-cpu"), ("b", "iree:cuda")}
    assert len(jobs) == 2 + 3


def test_an_edited_model_of_a_user_is_measured_again(tmp_path, planned):
    fleet = fleet_of(tmp_path, runs=(RunRequest(model="/models/mine.py"),))
    units = [units_of(fleet, print), units_of(fleet, print)]
    planned.append("2")
    units.append(units_of(fleet, print))
    [[before], [same], [after]] = units
    assert before == same
    assert before.digest != after.digest


def test_jobs_select_competitors_without_their_environments(tmp_path):
    """The run's own `--env` adds the environments on the node."""
    fleet = fleet_of(tmp_path, runs=(RunRequest(name="models/.+", env=["new=/new"]),))
    [unit] = units(1)
    item = attrs.evolve(unit, competitors=("a:x@new", "a:x@old", "b:y@new"))
    [job] = plan_jobs(fleet, [item], revision="r", campaign="").jobs
    assert job.arguments[job.arguments.index("--backend") + 1] == "a:x,b:y"
    assert "--env" in job.arguments


def test_durations_of_earlier_jobs_are_expected(tmp_path):
    job = plan(tmp_path).jobs[0]
    durations = {duration_key("a", job.arguments): 7.0}
    again = plan(tmp_path, durations_s=durations)
    assert {item.expected_s for item in again.jobs if item.label == job.label} == {
        *(7.0, job.expected_s)
    }


@given(
    durations=st.lists(st.floats(0.1, 10_000.0), min_size=1, max_size=60),
    minutes=st.integers(1, 300),
    limit_s=st.integers(60, 100_000),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_batches_hold_each_job_once_and_fit(tmp_path, durations, minutes, limit_s):
    classes = tuple(attrs.evolve(item, time_limit_s=limit_s) for item in CLASSES)
    fleet = fleet_of(tmp_path, classes=classes, batch_minutes=minutes)
    workloads = on_both_devices(len(durations))
    planned = plan_jobs(fleet, workloads, revision="r", campaign="").jobs
    jobs = [
        attrs.evolve(job, expected_s=durations[number % len(durations)])
        for number, job in enumerate(planned)
    ]
    batches = batches_of(fleet, jobs)
    assert sorted(job.key for batch in batches for job in batch) == sorted(job.key for job in jobs)
    for batch in batches:
        assert len({(job.machine_class, job.repeat) for job in batch}) == 1
        room_s = min(60 * minutes, limit_s / 2)
        assert len(batch) == 1 or math.fsum(job.expected_s for job in batch) <= room_s * 1.0001


def test_a_stored_plan(tmp_path):
    path = tmp_path / "plan.json"
    assert load_plan(path) is None
    save_plan(path, plan(tmp_path))
    assert load_plan(path) == plan(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_damaged_plan(tmp_path, content):
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="remove it and submit again") as raised:
        load_plan(path)
    assert "\n" not in str(raised.value)
