"""Accuracy at a trained model's task: metrics on made-up outputs, and what ships with the suite."""

import lzma

import attrs
import numpy as np
import pytest
from results_support import completed

from comparative_benchmark.analysis.verification import accuracy
from comparative_benchmark.results.case import cases_of
from comparative_benchmark.results.comparing import compare_remarks
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.models import architectures, checkpoints, trained
from openxla.benchmark.workloads import workload_of

NAMES = {"bert": "bert-tiny", "gpt2": "gpt2-tiny", "resnet": "resnet-tiny"}


def _task(model_name):
    task = trained.task_of({"model_name": model_name, "checkpoint": "trained"})
    assert task is not None
    return task


def _logits_of(classes, count):
    return np.eye(count)[classes.astype(int)]


def _in_batches(values, size=4):
    return [values[i : i + size] for i in range(0, len(values), size)]


def test_classes_that_the_float64_model_finds_give_its_accuracy():
    task = _task("resnet-tiny")
    found = accuracy.judge(task, _in_batches(_logits_of(task.examples["predicted"], 1000)))
    assert found.value == found.reference == task.reference
    assert (found.lost, found.gained, found.examples) == (0, 0, 400)
    assert str(found) == f"{task.reference:.1%}"


def test_other_classes_show_as_lost_and_gained():
    task = _task("resnet-tiny")
    logits = _logits_of(task.examples["predicted"], 10)
    wrong = task.examples["predicted"] != task.examples["labels"]
    logits[wrong] = _logits_of(task.examples["labels"][wrong], 10)
    logits[:40][~wrong[:40]] = np.roll(logits[:40][~wrong[:40]], 1, axis=1)
    found = accuracy.judge(task, [logits])
    assert found.gained == wrong.sum()
    assert found.lost == (~wrong[:40]).sum()
    assert found.value == pytest.approx(found.reference + (found.gained - found.lost) / 400)


def test_a_share_has_wilsons_interval_and_counts_every_change():
    task = _task("resnet-tiny")
    labels, predicted = task.examples["labels"], task.examples["predicted"]
    said = np.where(np.arange(400) < 360, labels, (labels + 1) % 10)
    found = accuracy.judge(task, [_logits_of(said, 10)])
    # Of 360 in 400, by Wilson's formula.
    assert (found.low, found.high) == (
        pytest.approx(0.8667, abs=1e-4),
        pytest.approx(0.9257, abs=1e-4),
    )
    assert found.changed == np.count_nonzero(said != predicted)
    assert found.loss == pytest.approx(task.reference - 0.9)
    assert found.loses_too_much


def test_what_the_task_allows_may_be_lost_and_no_example_more():
    task = _task("resnet-tiny")
    labels, predicted = task.examples["labels"], task.examples["predicted"]
    right = np.flatnonzero(labels == predicted)
    for wrong, too_much in ((4, False), (5, True)):  # 1 % of 400
        said = predicted.copy()
        said[right[:wrong]] = (said[right[:wrong]] + 1) % 10
        assert accuracy.judge(task, [_logits_of(said, 10)]).loses_too_much is too_much


def test_shuffled_labels_show(monkeypatch):
    task = _task("resnet-tiny")
    labels = np.random.default_rng(0).permutation(task.examples["labels"])
    monkeypatch.setitem(task.examples, "labels", labels)
    found = accuracy.judge(task, [_logits_of(task.examples["predicted"], 10)])
    assert found.value == found.reference < 0.2


def test_a_perplexity_is_compared_text_by_text():
    task = _task("gpt2-tiny")
    tokens, due = task.examples["tokens"].astype(int), task.examples["losses"]

    # Logits whose rows have exactly the float64 model's losses, or slightly more.
    def logits(losses):
        found = np.zeros((*tokens.shape, 1024))
        others = np.log(1023) - np.log(np.expm1(losses))
        np.put_along_axis(found[:, :-1], tokens[:, 1:, None], others[:, None, None], -1)
        return [found]

    same = accuracy.judge(task, logits(due))
    assert same.value == pytest.approx(task.reference)
    assert (same.ratio_low, same.ratio_high) == (pytest.approx(1), pytest.approx(1))
    assert same.low < same.value < same.high
    noise = 0.05 + 0.01 * np.random.default_rng(0).standard_normal(len(due))
    worse = accuracy.judge(task, logits(due + noise))
    assert worse.ratio_low < np.exp(0.05) < worse.ratio_high < 1.06
    # Pairs show it even if the intervals of the values overlap.
    assert same.low < worse.value < same.high
    assert worse.loss == pytest.approx(worse.ratio - 1)
    assert worse.loses_too_much
    assert not same.loses_too_much


def _case(found):
    record = {"metrics": {"framework_level": {"accuracy": attrs.asdict(found)}}}
    return cases_of(completed({"benchmarks": [record]}))[0]


def test_who_differs_is_named_and_who_loses_too_much_is_said():
    task = _task("resnet-tiny")
    said = task.examples["predicted"].copy()
    same = accuracy.judge(task, [_logits_of(said, 10)])
    said[:40] = (said[:40] + 1) % 10
    worse = accuracy.judge(task, [_logits_of(said, 10)])
    [about] = compare_remarks.remarks_on([_case(same)])
    assert "handwritten digits, 400 examples" in about
    [about, line] = compare_remarks.remarks_on([_case(same), _case(worse)])
    assert "changed 40 (-" in line
    assert line.endswith("loses more than its task allows (1 point)")
    assert compare_remarks.changes([(_case(same), _case(same))]) == []
    [changed] = compare_remarks.changes([(_case(same), _case(worse))])
    assert f"{same} before, {worse} now, loses more than" in changed


def test_results_that_tell_less_are_read_as_before():
    old = accuracy.Accuracy(
        task="digits", metric="top-1", value=0.5, reference=0.9, examples=400, lost=160, gained=0
    )
    assert not old.loses_too_much
    assert compare_remarks.change_text(old) == "(-160 +0)"
    assert compare_remarks.remarks_on([_case(old)]) == []


def test_programs_that_do_not_look_at_their_input_are_no_better_than_chance():
    task = _task("resnet-tiny")
    constant = np.tile(np.arange(10.0), (400, 1))
    assert accuracy.judge(task, [constant]).value < 0.2
    text = _task("gpt2-tiny")
    flat = np.zeros((*text.examples["tokens"].shape, 1024))
    assert accuracy.judge(text, [flat]).value == pytest.approx(1024)
    assert text.reference < 60


def test_classes_are_read_from_places_that_are_no_padding():
    task = _task("bert-tiny")
    found = task.examples
    tokens, lengths = found["tokens"][:8], found["lengths"][:8]
    hidden = np.random.default_rng(0).normal(size=(*tokens.shape, found["head"].shape[1]))
    first = accuracy.judge(task, [hidden])
    hidden[np.arange(tokens.shape[1]) >= lengths[:, None]] = 1e6
    assert accuracy.judge(task, [hidden]) == first
    hidden[:] = np.nan
    assert accuracy.judge(task, [hidden]).value == 0


def test_a_perplexity_that_is_not_finite_gives_none():
    task = _task("gpt2-tiny")
    logits = np.full((4, *task.examples["tokens"].shape[1:], 1024), np.nan)
    found = accuracy.judge(task, [logits])
    assert found.value is None
    assert str(found) == "not finite"
    assert found.loses_too_much
    assert found.low is found.ratio is None


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_inputs_of_the_model(name):
    architecture = architectures.get(name)
    parameters = architecture.creation_parameters(
        {"model_name": NAMES[name], "checkpoint": "trained", "seq_len": 32, "batch_size": 3}
    )
    task = _task(NAMES[name])
    batches = list(task.batches(architecture, parameters))
    assert len(batches) == len(next(iter(task.examples.values()))) // 3
    specs = architecture.input_specs(parameters)
    assert [value.shape for value in batches[-1]] == [spec.shape for spec in specs]
    learned = list(task.calibration(architecture, parameters, 30))
    assert len(learned) == 30
    assert not any(np.array_equal(given[0], held[0]) for given in learned for held in batches)
    if name != "resnet":
        with pytest.raises(DefinitionError, match="do not have the model's shape"):
            next(task.batches(architecture, {**parameters, "seq_len": 16}))


@pytest.mark.parametrize("name", NAMES)
def test_weights_ship_once_and_small_and_say_where_they_are_from(name):
    folder = trained.folder_of(NAMES[name])
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2**20
    assert trained.task_of({"model_name": NAMES[name]}) is None
    lzma.decompress((folder / trained.WEIGHTS).read_bytes())
    assert "(" in _task(NAMES[name]).source


def test_what_was_not_trained_is_refused():
    with pytest.raises(DefinitionError, match="no trained weights for 'gpt2'; choices are bert"):
        checkpoints.identity(
            architectures.get("gpt2"), {"model_name": "gpt2", "checkpoint": "trained"}
        )


def test_trained_models_are_other_workloads_than_seeded_ones():
    found = {
        case.model.name: workload_of(case)
        for case in catalog.all_benchmarks()
        if "RESNET_TINY_FP32" in case.model.name or "trained" in case.tags
    }
    trained_one = found["RESNET_TRAINED_FP32_PT_3X32X32XF32_BATCH4"]
    assert trained_one.digest == found["RESNET_TRAINED_FP32_TF_32X32X3XF32_BATCH4"].digest
    assert trained_one.digest != found["RESNET_TINY_FP32_PT_3X32X32XF32_BATCH4"].digest
    assert trained_one.label == "resnet-trained-fp32-4x3x32x32xf32"
