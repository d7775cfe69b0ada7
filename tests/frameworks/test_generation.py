"""Generation in 16 bits: every framework is right by another's truth, and wrong ones are found."""

import pytest
from framework_process import run_script
from tests_support import run_cbs

from comparative_benchmark.analysis.verification.generation_verification import (
    verify_forced_run,
    verify_free_run,
)
from openxla.benchmark.artifacts import array_files

pytestmark = pytest.mark.frameworks

PT = """
import importlib, json, sys
from pathlib import Path
from comparative_benchmark.pt_inductor.reference import compute
from comparative_benchmark.backends.frameworks.torch_modules import to_numpy
from openxla.benchmark.artifacts import array_files

target, name, data_type, seed = sys.argv[1:]
module = importlib.import_module(f"openxla.benchmark.models.pt.{name}")
model = module.create_model(
    model_name=f"{name}-tiny", batch_size=2, seq_len=16, max_new_tokens=8,
    data_type=data_type, seed=int(seed),
)
inputs = model.preprocess(model.generate_default_inputs())
truth, free = compute(model, inputs)
fed = model.verification_inputs(inputs, truth)
again, reference = compute(model, fed)

def save(stem, values):
    array_files.save_all(Path(target) / stem, "output", values)

for stem, values in (("inputs", fed), ("truth", truth), ("again", again), ("pt-free", free),
                     ("reference", reference)):
    save(stem, values)

decode = model.decode
def further(token, position, cache):
    return decode(token, position + 1, cache)
def stale(token, position, cache):
    copies = [(keys.clone(), values.clone()) for keys, values in cache]
    return decode(token, position, copies)[0], cache
def empty(token, position, cache):
    for keys, values in cache:
        values[:, :, -9] = 0  # the prompt's last place
    return decode(token, position, cache)
for fault, wrong in (("further", further), ("stale", stale), ("empty", empty)):
    model.decode = wrong
    for stem, given in (("free", fed[:-1]), ("fed", fed)):
        save(f"{fault}-{stem}", [to_numpy(value) for value in model.forward(*given)])
"""
JAX = """
import importlib, json, sys
from pathlib import Path
import jax
import numpy as np
from openxla.benchmark.artifacts import array_files

target, name, data_type, seed = sys.argv[1:]
module = importlib.import_module(f"openxla.benchmark.models.jax.{name}")
model = module.create_model(
    model_name=f"{name}-tiny", batch_size=2, seq_len=16, max_new_tokens=8,
    data_type=data_type, seed=int(seed),
)
inputs = array_files.load_all(Path(target) / "inputs", "output")
for stem, given in (("jax-free", inputs[:-1]), ("jax-fed", inputs)):
    outputs = jax.jit(model.apply)(model.params, *map(np.asarray, given))
    array_files.save_all(Path(target) / stem, "output", [np.asarray(value) for value in outputs])
"""
RUNS = [
    ("gpt2", "bf16", 0),  # which PyTorch and XLA leave at near-ties
    pytest.param(("gpt2", "bf16", 1), marks=pytest.mark.nightly),
    pytest.param(("llama", "bf16", 0), marks=pytest.mark.nightly),
    pytest.param(("llama", "fp16", 1), marks=pytest.mark.nightly),
    pytest.param(("gemma", "bf16", 0), marks=pytest.mark.nightly),
]
FAULTS = ("further", "stale", "empty")


@pytest.fixture(scope="module", params=RUNS, ids=lambda run: "-".join(map(str, run)))
def work(request, tmp_path_factory, environment):
    """Judges runs of a model by PyTorch's truth."""
    name, data_type, seed = request.param
    directory = tmp_path_factory.mktemp(name)
    for framework, script in (("pt", PT), ("jax", JAX)):
        arguments = [str(directory), name, data_type, str(seed)]
        run_script(script, arguments, environment, framework=framework)

    def files(stem):
        return array_files.numbered(directory / stem, "output")

    class Work:
        @staticmethod
        def judge(verify, stem):
            return verify(files(stem), files("truth"), files("reference"), data_type=data_type)

        @staticmethod
        def load(stem):
            return array_files.load_all(directory / stem, "output")

    return Work


def test_the_truth_repeats_itself_when_it_is_fed(work):
    for one, other in zip(work.load("truth"), work.load("again"), strict=True):
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize("framework", ["pt", "jax"])
def test_a_free_run_is_right_up_to_its_near_ties(work, framework):
    verdict = work.judge(verify_free_run, f"{framework}-free")
    assert verdict.passed, verdict.reason


@pytest.mark.parametrize("stem", ["reference", "jax-fed"])
def test_a_run_that_is_fed_is_right_at_every_step(work, stem):
    verdict = work.judge(verify_forced_run, stem)
    assert verdict.passed, verdict.reason


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_cache_is_found_at_the_latest_when_it_is_fed(work, fault):
    free = work.judge(verify_free_run, f"{fault}-free")
    # Tokens after a fault that does not show yet are checked by the run that is fed.
    assert not free.passed or free.divergences
    fed = work.judge(verify_forced_run, f"{fault}-fed")
    assert not fed.passed
    assert fed.reason.startswith("sequence ")


@pytest.fixture(scope="module")
def records(tmp_path_factory, environment):
    """Results of a bfloat16 model by every kind of backend."""
    directory = tmp_path_factory.mktemp("generation")
    # IREE takes a minute for a loop that PyTorch has unrolled, so it gets JAX's.
    for framework, backends in (("PT", "pt_inductor:eager"), ("JAX", "jax_xla,iree:llvm-cpu")):
        name = f"models/GPT2_TINY_GREEDY_BF16_{framework}_4X16XI32_8XI32/.+"
        run = run_cbs(
            *("--backend", backends, "-name", name, "-w", "1", "-iter", "5"),
            directory=directory,
            environment=environment,
        )
        assert run.code == 0, run.out + run.err
    found = run.document["benchmarks"]
    assert len(found) == 3
    return found


def test_prefill_and_decode_are_measured_apart_where_the_stack_can(records):
    for record in records:
        [metrics] = record["metrics"].values()
        found = metrics["generation"]
        assert metrics["final_verification"]["passed"]
        assert found["tokens_per_s"] == pytest.approx(32e3 / metrics["median_latency_ms"])
        if record["definition"]["backend"] == "iree":
            assert "cannot call prefill and decode separately" in found["not_measurable"]
            assert found["prefill_ms"] is found["decode_ms_per_token"] is None
        else:
            assert found["not_measurable"] is None, found["not_measurable"]
            assert found["verification"]["passed"]
            assert found["prefill_ms"] > 0
            assert 0 < found["decode_ms_per_token"] < metrics["median_latency_ms"]


def test_runs_that_left_the_truth_were_fed_and_judged_to_the_end(records):
    for record in records:
        [metrics] = record["metrics"].values()
        first, last = metrics["verification"], metrics["final_verification"]
        due = "truth" if first["divergences"] else "own"
        assert last["tokens_fed"] == due
        second = metrics["second_verification"]
        left = first["divergences"] or second["divergences"]
        assert ("verification_compile" in metrics["phases"]) == bool(left)
