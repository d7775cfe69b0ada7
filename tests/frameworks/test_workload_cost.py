"""The work of an iteration is counted from the model, with equal results in all frameworks."""

import json
import subprocess
import sys
from math import prod
from pathlib import Path

import pytest

from openxla.benchmark.models import architectures

# A separate process for each framework: torch and JAX set global state.
SCRIPT = """
import importlib, json, sys
import attrs
from openxla.benchmark.models.shared_model import as_tuple
framework, backend, cases = sys.argv[1:]
reference = importlib.import_module(f"comparative_benchmark.{backend}.reference")
for name, parameters in json.loads(cases).values():
    path = f"openxla.benchmark.models.{framework}.{name}"
    model = importlib.import_module(path).create_model(**parameters)
    inputs = as_tuple(model.preprocess(model.generate_default_inputs()))
    found = attrs.asdict(reference.cost(model, inputs))
    if framework == "jax":
        import jax
        found["xla"] = jax.jit(model.apply).lower(model.params, *inputs).cost_analysis()["flops"]
    print("cost", json.dumps(found))
"""
CASES = {
    "bert-tiny-fp32": ("bert", {"model_name": "bert-tiny", "seq_len": 32, "batch_size": 4}),
    "bert-tiny-bf16": ("bert", {"model_name": "bert-tiny", "seq_len": 32, "data_type": "bf16"}),
    "resnet-tiny-fp32": ("resnet", {"model_name": "resnet-tiny", "batch_size": 4}),
    "resnet-tiny-fp16": ("resnet", {"model_name": "resnet-tiny", "data_type": "fp16"}),
}
EXAMPLE = {"example": ("example", {"batch_size": 1})}


def run(script, *arguments, environment):
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("cost ")]
    return [json.loads(line.removeprefix("cost ")) for line in lines]


@pytest.fixture(scope="module")
def costs(environment):
    """By framework and case."""
    found = {}
    for framework, backend, cases in (
        ("pt", "pt_inductor", CASES | EXAMPLE),
        ("jax", "jax_xla", CASES),
    ):
        rows = run(SCRIPT, framework, backend, json.dumps(cases), environment=environment)
        found[framework] = dict(zip(cases, rows, strict=True))
    return found


@pytest.mark.parametrize("case", CASES)
def test_frameworks_count_the_same(costs, case):
    pt, jax = costs["pt"][case], costs["jax"][case]
    assert pt["flops"] == jax["flops"] > 0
    # transformers keeps position and type IDs as buffers; our JAX model does not.
    assert pt["bytes"] == pytest.approx(jax["bytes"], rel=0.01)
    assert "PyTorch" in pt["flops_source"]
    assert "JAX" in jax["flops_source"]


@pytest.mark.parametrize("case", CASES)
def test_xla_counts_within_a_tenth(costs, case):
    # BERT 9-10 % more (sums, norms, activations), ResNet 5 % less (no products with padding).
    assert costs["jax"][case]["flops"] == pytest.approx(costs["jax"][case]["xla"], rel=0.1)


def test_bert_costs_what_paper_and_pencil_say(costs):
    config = architectures.get("bert").config("bert-tiny")
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    batch, seq = 4, 32
    # Query, key, value, output, and two products with four times the width; then q k' and its v.
    dense = 2 * batch * seq * (4 + 2 * 4) * hidden**2
    attention = 2 * 2 * batch * seq**2 * hidden
    found = costs["jax"]["bert-tiny-fp32"]
    assert found["flops"] == layers * (dense + attention)
    tables = {
        "word_embeddings": batch * seq,
        "position_embeddings": seq,
        "token_type_embeddings": 1,
    }
    values = 0
    for tensor in architectures.get("bert").tensors(config):
        if "pooler" not in tensor.name:
            rows = next((rows for name, rows in tables.items() if name in tensor.name), None)
            values += prod(tensor.shape) if rows is None else rows * hidden
    ids, outputs = 2 * batch * seq, batch * seq * hidden
    assert found["bytes"] == 4 * (values + ids + outputs)


def test_a_model_of_one_framework_is_counted_too(costs):
    found = costs["pt"]["example"]
    # The stem alone: 32x32 positions, 16 filters of 3x3x3.
    assert found["flops"] > 2 * 32 * 32 * 16 * 27
    assert found["bytes"] > 4 * 3 * 64 * 64


JAX_MODELS = """
import json
import jax, jax.numpy as jnp, numpy as np
from comparative_benchmark.jax_xla.reference import cost
w = jnp.ones((8, 8))
x = np.ones((4, 8), np.float32)
def body(carry, _):
    return carry @ w, None
class Model:
    def __init__(self, forward):
        self.forward = forward
models = {
    "scan": lambda x: jax.lax.scan(body, x, None, length=5)[0],
    "jit": lambda x: jax.jit(jax.checkpoint(lambda y: y @ w))(x),
    "cond": lambda x: jax.lax.cond(x[0, 0] > 0, lambda y: y @ w, lambda y: (y + 1) @ w, x),
    "uneven": lambda x: jax.lax.cond(x[0, 0] > 0, lambda y: y @ w, lambda y: y, x),
    "while": lambda x: jax.lax.while_loop(lambda y: y[0, 0] < 9, lambda y: y @ w, x),
    "scatter": lambda x: (x @ w).at[0, np.array([1, 2])].add(w[0, :2]),
    "reduce": lambda x: jax.lax.reduce(x @ w, np.float32(0), lambda a, b: a * b + b, (1,)),
    "shared": lambda x: jax.jit(lambda y: y @ w)(x) + jax.jit(lambda y: -y @ w)(x),
    "grouped": lambda x: jax.lax.conv_general_dilated(
        x.reshape(1, 8, 4), jnp.ones((8, 1, 3)), (1,), "SAME", feature_group_count=8),
    "transposed": lambda x: jax.lax.conv_transpose(
        x.reshape(1, 4, 8), jnp.ones((2, 8, 3)), (2,), "SAME"),
}
for name, forward in models.items():
    try:
        found = cost(Model(forward), [x])
        print("cost", json.dumps([name, found.flops, found.bytes]))
    except ValueError as error:
        print("cost", json.dumps([name, str(error), None]))
"""


def test_loops_and_branches_in_jax(environment):
    found = {
        name: (flops, moved) for name, flops, moved in run(JAX_MODELS, environment=environment)
    }
    product, moved = 2 * 4 * 8 * 8, 4 * (8 * 8 + 2 * 4 * 8)
    assert found["scan"] == (5 * product, moved)
    assert found["jit"] == (product, moved)
    assert found["cond"] == (product, moved)
    assert found["scatter"][0] == product
    assert moved <= found["scatter"][1] <= moved + 64  # the indices are a constant, too
    assert found["reduce"][0] == product
    assert found["shared"] == (2 * product, moved)
    assert "differ in cost" in found["uneven"][0]
    assert "while" in found["while"][0]
    assert found["grouped"][0] == 2 * 4 * 8 * 3
    # Each of the 4 positions with its 8 channels meets 2 taps of 3 filters.
    assert found["transposed"][0] == 2 * 4 * 8 * 2 * 3


PT_MODELS = """
import json
import numpy as np, torch
from comparative_benchmark.pt_inductor.reference import cost
w, table = torch.ones(8, 8), torch.ones(100, 8)
class Model:
    def __init__(self, forward):
        self.forward = forward
def inference(x):
    with torch.inference_mode():
        return torch.nn.functional.linear(x, w)
def by_value(x):
    return x @ w if bool(x.sum() > 0) else x
def attention(x):
    y = (x @ w).reshape(1, 1, 4, 8)
    return torch.nn.functional.scaled_dot_product_attention(y, y, y)
kernels = torch.ones(8, 1, 3, requires_grad=True)
def grouped(x):
    with torch.enable_grad():
        x = x.reshape(1, 8, 4).detach().requires_grad_()
        y = torch.nn.functional.conv1d(x, kernels, groups=8)
        return torch.autograd.grad(y.sum(), [x, kernels])
models = {
    "grouped": grouped,
    "linear": lambda x: torch.nn.functional.linear(x, w),
    "inference": inference,
    "twice": lambda x: x @ w @ w.t(),
    "table": lambda x: x + torch.nn.functional.embedding(torch.tensor([3, 5, 7, 9]), table),
    "attention": attention,
    "by_value": by_value,
}
for name, forward in models.items():
    try:
        found = cost(Model(forward), [np.ones((4, 8), np.float32)])
        print("cost", json.dumps([name, found.flops, found.bytes]))
    except Exception as error:
        print("cost", json.dumps([name, type(error).__name__, None]))
"""


def test_operations_of_pytorch(environment):
    found = {name: (flops, moved) for name, flops, moved in run(PT_MODELS, environment=environment)}
    product, moved = 2 * 4 * 8 * 8, 4 * (8 * 8 + 2 * 4 * 8)
    assert found["linear"] == found["inference"] == (product, moved)
    assert found["twice"] == (2 * product, moved)
    assert found["table"] == (0, 4 * 3 * 4 * 8)
    assert found["attention"] == (product + 2 * 2 * 4 * 4 * 8, moved)
    # Forward and two gradients: 3 taps for each of 8 x 2 outputs.
    assert found["grouped"][0] == 3 * 2 * 3 * 8 * 2
    assert found["by_value"] == ("DataDependentOutputException", None)


def test_a_run_keeps_the_cost_with_the_truth(cbs_run, environment):
    name = "models/BERT_TINY_FP32_PT_32XI32_BATCH1/.+"
    done = cbs_run("--backend", "pt_inductor:eager", "-name", name, "-w", "1", "-iter", "1")
    assert done.code == 0, done.out + done.err
    [record] = done.document["benchmarks"]
    workload = record["definition"]["workload"]["id"]
    root = Path(environment["CBS_ROOT_DIR"])
    manifest = json.loads((root / "workloads" / workload / "manifest.json").read_text())
    assert manifest["cost"]["flops"] == 26_214_400
    assert manifest["cost"]["bytes"] == pytest.approx(1.64e6, rel=0.01)
