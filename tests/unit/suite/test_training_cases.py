"""Training cases: the catalogue, their identity, and changes that a digest detects."""

import re
from types import SimpleNamespace

import attrs
import numpy as np
import pytest

from comparative_benchmark.backends.api import backends
from comparative_benchmark.backends.model_protocols import TrainingLoop
from comparative_benchmark.engine import preparation
from comparative_benchmark.engine.runner import plan
from comparative_benchmark.engine.trial import competitors_of
from comparative_benchmark.sources import selection
from openxla.benchmark import devices
from openxla.benchmark.artifacts.workload_store import directory_of
from openxla.benchmark.comparative_suite import catalog, training_cases
from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.training import OPTIMIZERS, STEPS, architecture
from openxla.benchmark.training.architecture import ARCHITECTURE, IGNORED, judged, trained
from openxla.benchmark.training.models import digest
from openxla.benchmark.workloads import training_of, workload_of

BERT = {"model_name": "bert-tiny", "seq_len": 32, "batch_size": 4, "data_type": "fp32"}


def selected(**changes):
    return selection.select(**{"name": None, **changes})


def test_training_is_selected_by_its_option_alone():
    everything = selected()
    assert everything == selected(test="eval")
    assert not any(map(training_of, everything))
    training = selected(test="train")
    assert all(map(training_of, training))
    names = {case.model.name for case in training}
    assert "BERT_TINY_TRAIN_ADAMW_FP32_PT_32XI32_BATCH4" in names
    assert not names & {case.model.name for case in everything}
    with pytest.raises(catalog.NoMatchError):
        selected(test="train", tags=["tiny-zoo"])


def test_the_frameworks_share_workloads_and_optimizers_do_not():
    training = training_cases.all_cases()
    found = {workload_of(case).id for case in training}
    assert len(found) * 3 == len(training)
    [sgd, adamw] = (
        workload_of(training_cases.named(f"VIT_TINY_TRAIN_{name}_FP32_TF_32X32X3XF32_BATCH4"))
        for name in ("SGD", "ADAMW")
    )
    assert sgd.digest != adamw.digest
    assert sgd.checkpoint == adamw.checkpoint


def test_the_checkpoint_is_that_of_the_inference_case():
    training = training_cases.named("BERT_TINY_TRAIN_SGD_FP32_PT_32XI32_BATCH4")
    [inference] = selected(name="models/BERT_TINY_FP32_PT_32XI32_BATCH4/.+DEFAULT")
    assert workload_of(training).checkpoint == workload_of(inference).checkpoint


def test_a_hyper_parameter_is_a_part_of_the_identity(monkeypatch):
    before = ARCHITECTURE.training({**BERT, "train": "sgd"})
    changed = attrs.evolve(OPTIMIZERS["sgd"], weight_decay=0.02)
    monkeypatch.setattr("openxla.benchmark.training.OPTIMIZERS", {**OPTIMIZERS, "sgd": changed})
    assert ARCHITECTURE.training({**BERT, "train": "sgd"}) != before


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({**BERT, "train": "adam"}, "'train' must be one of sgd, adamw, got 'adam'"),
        ({**BERT, "train": "sgd", "data_type": "fp16"}, "in fp32 or bf16, not 'fp16'"),
        ({**BERT, "train": "sgd", "model_name": "t5-tiny"}, "model 't5-tiny' cannot be trained"),
    ],
)
def test_what_cannot_be_trained_is_reported(parameters, message):
    with pytest.raises(DefinitionError, match=message):
        ARCHITECTURE.training(parameters)


def test_of_each_row_something_is_hidden_and_nothing_but_labels_knows_what(tmp_path, monkeypatch):
    monkeypatch.setenv("CBS_ROOT_DIR", str(tmp_path))
    from openxla.benchmark.models.architectures import bert
    from openxla.benchmark.models.checkpoints import resolve

    parameters = {**BERT, "train": "adamw"}
    checkpoint = resolve(bert.ARCHITECTURE, parameters)
    raw = ARCHITECTURE.default_inputs(parameters)
    ids, mask, labels = ARCHITECTURE.preprocess(raw, parameters, checkpoint)
    assert ids.shape == mask.shape == labels.shape == (STEPS, 4, 32)
    hidden = labels != IGNORED
    assert hidden.any(axis=-1).all()
    assert not (hidden & (mask == 0)).any()
    assert (ids[hidden] == 1023).all()
    assert 0.05 < hidden.sum() / mask.sum() < 0.35
    assert len({row.tobytes() for row in ids.reshape(-1, 32)}) == STEPS * 4


def test_exported_programs_and_recipes_take_no_step():
    case = training_cases.named("BERT_TINY_TRAIN_SGD_FP32_PT_32XI32_BATCH4")
    info = backends()
    competitors = [
        *competitors_of(info["pt_inductor"], ["eager", "aot-inductor", "eager+int8wo"], "cpu"),
        *competitors_of(info["onnxruntime"], [], "cpu"),
    ]
    cpu = next(device for device in devices.ALL_DEVICES if device.name == "host-cpu")
    refused = {
        str(trial.competitor): trial.refused for trial in plan([case], competitors, cpu).trials
    }
    assert refused.pop("pt_inductor:eager") is None
    assert all(refused.values())
    assert "do not update weights" in refused["onnxruntime:default"]


def sized(name, limit_gib, root, monkeypatch):
    monkeypatch.setenv("CBS_ROOT_DIR", str(root))
    case = training_cases.named(name)
    competitors = competitors_of(backends()["pt_inductor"], ["eager"], "cpu")
    cpu = next(device for device in devices.ALL_DEVICES if device.name == "host-cpu")
    [trial] = plan([case], competitors, cpu).trials
    limits = SimpleNamespace(memory_bytes=limit_gib * 2**30)
    return preparation.why_too_large(trial, SimpleNamespace(limits=limits))


def test_what_cannot_fit_into_memory_is_refused_in_a_line(tmp_path, monkeypatch):
    gpt2 = "GPT2LMHEAD_TRAIN_ADAMW_FP32_PT_512XI32_BATCH"
    assert sized(f"{gpt2}1", 24, tmp_path, monkeypatch) is None
    reason = sized(f"{gpt2}16", 24, tmp_path, monkeypatch)
    assert re.fullmatch(
        r"the float64 truth for the training steps would need at least [\d.]+ GiB of memory "
        r"\(124 M weights, batch 16\), but the limit is 24.0 GiB: use a smaller batch, or raise "
        r"--memory-limit",
        reason,
    )
    # Existing artifacts are not made again.
    case = training_cases.named(f"{gpt2}16")
    directory_of(workload_of(case)).mkdir(parents=True)
    assert sized(f"{gpt2}16", 24, tmp_path, monkeypatch) is None
    assert "the training steps would need" in sized(f"{gpt2}16", 4, tmp_path, monkeypatch)


def test_tiny_steps_fit_into_a_gib_and_masters_cost_memory():
    for case in training_cases.all_cases():
        parameters = case.model.model_parameters
        if "tiny" in case.tags:
            assert architecture.truth_bytes(parameters) < 2**30
    fp32 = {**BERT, "train": "adamw"}
    mixed = {**fp32, "data_type": "bf16"}
    assert architecture.truth_bytes(mixed) > architecture.truth_bytes(fp32)


def test_statistics_and_unused_tensors_are_not_trained():
    assert not [n for n in trained(BERT) if n.startswith("pooler")]
    assert not [n for n in trained({"model_name": "resnet-tiny"}) if "running" in n]


def test_a_digest_sees_rate_and_decay_in_any_layout():
    random = np.random.default_rng(0)
    optimizer = OPTIMIZERS["adamw"]
    rate = optimizer.learning_rate
    w = random.normal(size=(64, 32)).astype(np.float32)
    step = np.sign(random.normal(size=w.shape)).astype(np.float32) * rate * STEPS

    def row(after):
        [[size, _]], [along] = digest([(w, after.astype(np.float32))], optimizer)
        return size, along / np.linalg.norm(w)

    decayed = w * (1 - rate * optimizer.weight_decay) ** STEPS
    right = row(decayed + step)
    assert row(decayed + 1.1 * step)[0] - right[0] == pytest.approx(np.log(1.1), abs=3e-3)
    assert row(w + step)[1] - right[1] == pytest.approx(optimizer.weight_decay, rel=0.01)
    assert row(w)[0] < -27
    as_it_is, turned = (
        digest([(first, last)], optimizer)
        for first, last in ((w, decayed + step), (w.T, (decayed + step).T))
    )
    for one, other in zip(as_it_is, turned, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_network_in_bf16_is_judged_by_masters_that_have_a_gradient():
    mixed = {**BERT, "data_type": "bf16", "train": "adamw"}
    assert ARCHITECTURE.training(mixed)["masters"] == "f32"
    assert {spec.dtype for spec in ARCHITECTURE.output_specs(mixed)} == {"f32"}
    left_out = set(trained(mixed)) - set(judged(mixed))
    assert left_out == {f"encoder.layer.{n}.attention.self.key.bias" for n in (0, 1)}
    assert judged({**BERT, "train": "adamw"}) == trained(mixed)


class Counting:
    """A run whose weights count the steps since its start."""

    def __init__(self):
        self.count, self.starts = 0, 0

    def start(self):
        self.count, self.starts = 0, self.starts + 1

    def step(self, batch):
        self.count += batch
        return self.count, 0


def test_a_loop_takes_the_steps_in_order_and_starts_again():
    run = Counting()
    loop = TrainingLoop(run, [(1,), (10,), (100,)], lambda told: [loss for loss, _ in told])
    first = loop.dispatch()
    assert run.count == 1
    assert loop.finish(first) == (1, 11, 111)
    loop.rewind()
    assert (run.count, run.starts) == (0, 1)
    for expected in (1, 11, 111, 1):
        last = loop.dispatch()
        assert run.count == expected
    assert run.starts == 2
    kept = loop.finish(last)
    assert loop.finish(kept) == kept == (1, 11, 111)
    loop.restart([(2,), (20,), (200,)])
    assert loop.finish(loop.dispatch()) == (2, 22, 222)


def test_outputs_of_a_step_that_training_has_left_behind_are_refused():
    loop = TrainingLoop(Counting(), [(1,), (10,), (100,)], list)
    earlier = loop.dispatch()
    loop.dispatch()
    with pytest.raises(RuntimeError, match="training has continued"):
        loop.finish(earlier)
