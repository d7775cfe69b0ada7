"""Workers that serve several workloads: fewer processes, the same care."""

import argparse

import pytest

from comparative_benchmark.api.case_selection import Selection
from comparative_benchmark.api.measuring import measure
from comparative_benchmark.engine import race
from comparative_benchmark.request import RunRequest
from openxla.benchmark import def_types, testdata


def _case(fault, data):
    return def_types.BenchmarkCase.build(
        model=def_types.Model(
            name=f"TOY_{fault.upper()}",
            model_impl=def_types.ModelImplementation(
                name="TOY_model",
                framework_type=def_types.ModelFrameworkType.PYTORCH,
                module_path="cbs_test_plugin.model",
                architecture="cbs_test_plugin.architecture",
                reference="cbs_test_truth:reference",
            ),
            model_parameters={"model_name": "toy", "data_type": "fp32", "fault": fault},
        ),
        input_data=data,
    )


class Heard(argparse.Namespace):
    """An observer that records messages."""

    def __init__(self):
        super().__init__(lines=[])

    def say(self, line):
        self.lines.append(line)

    def preparing(self, what): ...

    def race_started(self, trials, position, total, processes): ...

    def process_finished(self, entry): ...

    def trial_finished(self, result, position, total): ...


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run of all cases, without the check that rounds are steady."""
    directory = tmp_path_factory.mktemp("shared")
    request = RunRequest(
        backends=["test_numpy"],
        processes=3,
        output=directory / "results.json",
        root_dir=directory / "root",
        precision=0.5,
    )
    first, second, third = (
        testdata.INPUT_DATA_MODEL_DEFAULT,
        testdata.INPUT_DATA_SHORT,
        testdata.INPUT_DATA_LONG,
    )
    cases = [
        *(_case("none", first), _case("none", second), _case("raises", second)),
        _case("no-memory", second),
        _case("none", third),
    ]
    heard = Heard()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CBS_ROOT_DIR", str(directory / "root"))
        patch.setattr(race, "judge_rounds", lambda *_, **__: None)
        measured = measure(
            request, heard, command=["test"], selection=Selection(cases=cases, share_workers=True)
        )
    logs = {path.name for path in directory.glob("results.logs/*/*.log")}
    return measured.results, heard.lines, logs


def test_one_worker_serves_all_workloads_and_replicates_are_still_three(run):
    results, _, logs = run
    good = [result for result in results if "NONE" in result.definition.model]
    assert [result.status.value for result in good] == ["ok"] * 3
    for result in good:
        assert len(result.measured.processes) == 3
        assert result.measured.race.shared_workers
        # Each run has other folders; this is not a change of the machine.
        assert "cbs-workers-" not in str(result.measured.variables)
        assert "{cache_dir}" in result.measured.variables["CUDA_CACHE_PATH"]
        for process in result.measured.processes:
            assert 0 < process.host_memory_base_mb <= process.host_memory_peak_mb
    served = {name for name in logs if ".process-" in name}
    # Trials of one workload have separate workers; a failure ends the worker of its trial.
    assert len(served) <= 3 + 3 + 2, sorted(served)


def test_what_failed_next_to_others_is_run_again_alone(run):
    results, said, _ = run
    (failed,) = [result for result in results if "RAISES" in result.definition.model]
    assert failed.status.value == "failed"
    assert "this model is tired" in failed.reason
    assert [line for line in said if "retrying it in a separate one" in line]


def test_what_runs_out_of_memory_in_the_middle_is_kept_and_the_others_continue(run):
    results, _, _ = run
    (failed,) = [result for result in results if "NO-MEMORY" in result.definition.model]
    assert failed.status.value == "out_of_memory"
    # `--resume` uses this: ok trials are not run again, all others are.
    assert results.index(failed) < len(results) - 1
    assert results[-1].status.value == "ok"
