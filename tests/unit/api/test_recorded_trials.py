"""The result that `cbs repro` selects, and its message if that is ambiguous."""

import attrs
import numpy as np
import pytest
from results_support import completed

from comparative_benchmark.api import recorded_trials
from comparative_benchmark.engine.recording import to_result
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import Definition, Status
from comparative_benchmark.results.results_file import converted, plain
from openxla.benchmark.artifacts import array_files

BERT = "BERT_TINY_FP32_JAX_32XI32_BATCH1"
OTHER = "BERT_TINY_FP32_JAX_32XI32_BATCH4"
RESNET = "RESNET_TINY_FP32_JAX_3X32X32XF32_BATCH1"
INPUT = "inputs/INPUT_DATA_MODEL_DEFAULT"
RUN = {
    "run_id": "r",
    "execution_environment": {
        "host": {"threads": 2, "cpu_model": "A CPU"},
        "git_revision": "abc123",
        "python_environment": [{"name": "jaxlib", "version": "0.1"}],
        "environments": {"old": {"python_environment": [{"name": "jaxlib", "version": "0.0.9"}]}},
    },
}


@pytest.fixture
def document(make_trial, finished):
    """Makes a results document of (model, competitor, changes of the record)."""

    def make(*items):
        records = []
        for model, competitor, changes in items:
            trial = make_trial(f"models/{model}/{INPUT}", competitor)
            definition = plain(to_result(trial, finished(), run_id="r").definition)
            records.append({"run_id": "r", "definition": definition, **changes})
        runs = [RUN, {**RUN, "run_id": "later"}]
        return completed({"runs": runs, "benchmarks": records})

    return make


@pytest.mark.parametrize(
    "asked", [f"models/{BERT}/{INPUT}", BERT, "BERT.+BATCH1/", "^models/BERT_TINY_FP32_JAX.+CH1"]
)
def test_a_case_is_known_by_its_name_its_models_or_an_expression(document, asked):
    found = recorded_trials.find(
        document(
            (BERT, "jax_xla:xla", {}), (OTHER, "jax_xla:xla", {}), (RESNET, "jax_xla:xla", {})
        ),
        asked,
    )
    assert found.result.definition.model == BERT
    assert found.threads == 2


def test_an_expression_that_several_cases_match_lists_them(document):
    with pytest.raises(UsageError, match="matches 2 cases") as caught:
        recorded_trials.find(
            document((BERT, "jax_xla:xla", {}), (OTHER, "jax_xla:xla", {})), "BERT_TINY_FP32_JAX"
        )
    assert BERT in str(caught.value)
    assert OTHER in str(caught.value)


def test_a_case_that_is_not_there_gets_the_nearest(document):
    with pytest.raises(UsageError, match="the results file has no case") as caught:
        recorded_trials.find(document((BERT, "jax_xla:xla", {})), BERT.replace("TINY", "TINI"))
    assert BERT in str(caught.value)


def test_a_malformed_expression_and_an_empty_file_are_named(document):
    with pytest.raises(UsageError, match="not a valid regular expression"):
        recorded_trials.find(document((BERT, "jax_xla:xla", {})), "(")
    with pytest.raises(UsageError, match="contains no results"):
        recorded_trials.find(document(), BERT)


def test_of_several_competitors_one_has_to_be_chosen(document):
    several = document(
        (BERT, "jax_xla:xla", {}),
        (BERT, "iree:llvm-cpu", {"status": "wrong_output"}),
        (BERT, "iree:llvm-cpu-data-tiling", {}),
    )
    with pytest.raises(UsageError, match="more than one competitor") as caught:
        recorded_trials.find(several, BERT)
    assert "iree:llvm-cpu (wrong_output)" in str(caught.value)
    assert "--backend" in str(caught.value)
    chosen = recorded_trials.find(several, BERT, competitor="iree:llvm-cpu")
    assert chosen.status is Status.WRONG_OUTPUT
    assert recorded_trials.find(several, BERT, competitor="jax_xla").competitor == "jax_xla:xla"
    with pytest.raises(UsageError, match="--backend 'iree' matches more than one"):
        recorded_trials.find(several, BERT, competitor="iree")
    with pytest.raises(UsageError, match="--backend 'xla_hlo' matches no competitor"):
        recorded_trials.find(several, BERT, competitor="xla_hlo")


def test_of_a_trial_that_was_run_again_the_latest_counts(document):
    later = {"status": "timeout", "run_id": "later"}
    again = document((BERT, "jax_xla:xla", {}), (BERT, "jax_xla:xla", later))
    assert recorded_trials.find(again, BERT).status is Status.TIMEOUT


def test_versions_are_those_of_where_it_was_measured(document):
    found = recorded_trials.find(
        document((BERT, "jax_xla:xla", {"versions": {"jax": "0.1"}})), BERT
    )
    assert recorded_trials.versions_of(found) == {"jaxlib": "0.1", "jax": "0.1"}
    assert found.revision == "abc123"
    elsewhere = _changed(
        recorded_trials.find(document((BERT, "jax_xla:xla", {"versions": {}})), BERT),
        environment={"name": "old", "python": "/old"},
    )
    assert recorded_trials.versions_of(elsewhere) == {"jaxlib": "0.0.9"}
    assert recorded_trials.versions_of(attrs.evolve(found, run=None)) == {"jax": "0.1"}


@pytest.mark.parametrize("competitor", ["jax_xla:xla", "iree:llvm-cpu", "xla_hlo:hlo-text"])
def test_the_trial_of_a_result_is_the_one_that_was_run(document, make_trial, competitor):
    found = recorded_trials.find(document((BERT, competitor, {})), BERT)
    again = recorded_trials.trial_of(found)
    assert again == make_trial(f"models/{BERT}/{INPUT}", competitor)


def _changed(found, **changes):
    definition = converted(plain(found.result.definition) | changes, Definition)
    return attrs.evolve(found, result=attrs.evolve(found.result, definition=definition))


def test_what_is_not_any_more_what_was_measured_is_refused(document):
    found = recorded_trials.find(document((BERT, "jax_xla:xla", {})), BERT)
    workload = plain(found.result.definition.workload) | {"digest": "0" * 64}
    with pytest.raises(UsageError, match=r"has changed since it was measured.*revision abc123"):
        recorded_trials.trial_of(_changed(found, workload=workload))
    with pytest.raises(UsageError, match="no model GONE"):
        recorded_trials.trial_of(
            _changed(found, model="GONE", benchmark_name="models/GONE/inputs/X")
        )
    with pytest.raises(UsageError, match="no input X for"):
        recorded_trials.trial_of(
            _changed(found, benchmark_name=f"models/{BERT}/inputs/X", input_data="X")
        )


def test_what_can_not_be_exported_is_refused(document):
    found = recorded_trials.find(document((BERT, "jax_xla:xla", {})), BERT)
    with pytest.raises(UsageError, match="no backend 'unknown'"):
        recorded_trials.trial_of(_changed(found, backend="unknown"))
    with pytest.raises(UsageError, match="test_absent cannot export programs; choose"):
        recorded_trials.trial_of(_changed(found, backend="test_absent"))
    with pytest.raises(UsageError, match="support only CPUs"):
        recorded_trials.trial_of(_changed(found, device="host-gpu"))
    elsewhere = _changed(found, environment={"name": "old", "python": "/nowhere"})
    with pytest.raises(UsageError, match="cannot use the recorded environment"):
        recorded_trials.trial_of(elsewhere, run_recorded_python=True)


def test_an_interpreter_that_the_file_names_is_not_run_unasked(document, tmp_path):
    mark = tmp_path / "ran"
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\ntouch {mark}\n")
    script.chmod(0o755)
    found = recorded_trials.find(document((BERT, "jax_xla:xla", {})), BERT)
    changed = _changed(found, environment={"name": "old", "python": str(script)})
    with pytest.raises(UsageError, match=f"{script}.*--recorded-python"):
        recorded_trials.trial_of(changed)
    assert not mark.exists()
    with pytest.raises(UsageError, match="cannot run"):
        recorded_trials.trial_of(changed, run_recorded_python=True)
    assert mark.exists()


def test_a_case_on_a_users_own_inputs_is_found_by_where_they_are(document, tmp_path, finished):
    for index, value in enumerate((np.arange(32), np.ones(32))):
        np.save(tmp_path / f"input_{index}.npy", value.astype(np.int32).reshape(1, 32))
    found = recorded_trials.find(document((BERT, "jax_xla:xla", {})), BERT)
    trial = recorded_trials.trial_of(found)
    (case,) = array_files.cases_with([trial.case], array_files.read_user_inputs(tmp_path))
    own = type(trial)(
        case=case,
        workload=recorded_trials.workload_of(case),
        competitor=trial.competitor,
        device=trial.device,
    )
    recorded = Case(result=to_result(own, finished(), run_id="r"))
    assert recorded_trials.trial_of(recorded) == own
    (tmp_path / "input_1.npy").unlink()
    with pytest.raises(UsageError, match="cannot read the recorded inputs"):
        recorded_trials.trial_of(recorded)


def test_every_backend_of_the_suite_has_an_exporter():
    from comparative_benchmark.backends.api import backends

    own = {name for name, info in backends().items() if info.implementation.startswith("compar")}
    assert own == {name for name, info in backends().items() if info.reproducer} - {"test_numpy"}
