"""Live models of the Python API: modules and functions of the user's own process."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

START = """
import json
import comparative_benchmark as cb

def show(results):
    print(json.dumps([
        {"name": case.result.definition.model, "workload": case.workload,
         "status": case.status.value, "why": case.why}
        for case in results
    ]))

def refused(*arguments):
    try:
        cb.run(*arguments)
    except cb.UsageError as error:
        print(json.dumps(str(error)))

QUICK = {"warmup_iterations": 1, "iterations": 3}
"""
TORCH = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.dropout = torch.nn.Embedding(10, 8), torch.nn.Dropout(0.5)

    def forward(self, ids, scale):
        return self.dropout(self.table(ids)).sum(1) * scale

class Branch(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1

net = Net()
net.table.eval()
inputs = {"scale": torch.full((1, 1), 2.0), "ids": torch.tensor([[1, 2, 9]])}
show(cb.run(net, inputs, backends=["pt_inductor:eager", "onnxruntime"], **QUICK))
show(cb.run(torch.compile(net), inputs, backends=["pt_inductor:eager"], **QUICK))
print(json.dumps([net.training, net.dropout.training, net.table.training]))
refused(Branch(), torch.ones(2))
refused(torch.nn.Linear(2, 2, device="meta"), torch.ones(2))
"""
JAX = """
import jax.numpy as jnp

def mlp(params, x):
    return {"y": jnp.tanh(x @ params["w"]) + params["b"]}

def branch(x):
    return x + 1 if x.sum() > 0 else x - 1

inputs = ({"w": jnp.eye(4) / 2, "b": jnp.ones(4, jnp.float32)}, jnp.arange(8.0).reshape(2, 4))
show(cb.run(mlp, inputs, backends=["jax_xla", "xla_hlo:stablehlo"], **QUICK))
refused(branch, jnp.ones(2))
"""
KERAS = """
import keras
import numpy as np

class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, x):
        return self.dense(x)

keras.utils.set_random_seed(0)
left, right = keras.Input((4,), name="left"), keras.Input((4,), name="right")
adder = keras.Model([left, right], keras.layers.Dense(3)(left - right), name="adder")
inputs = {"right": np.ones((2, 4)), "left": np.arange(8.0).reshape(2, 4)}
for _ in range(2):
    show(cb.run(adder, inputs, backends=["tf_xla:xla"], **QUICK))
refused(Own(), np.ones((2, 4), np.float32))
"""


def lines_of(program, folder, environment):
    """Returns what a program prints, each line decoded."""
    script = folder / "script.py"
    script.write_text(START + program)
    done = subprocess.run(
        [sys.executable, "-P", str(script)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line[:1] in '["']


def assert_ok(shown, name, count):
    assert [row["name"] for row in shown] == [name] * count
    assert all(row["status"] == "ok" for row in shown), shown


def test_a_module_of_pytorch(tmp_path, environment):
    raced, compiled, modes, branch, meta = lines_of(TORCH, tmp_path, environment)
    assert_ok(raced, "NET_FP32_PT", 2)
    assert_ok(compiled, "NET_FP32_PT", 1)
    assert {row["workload"] for row in [*raced, *compiled]} == {raced[0]["workload"]}
    assert modes == [True, True, False]
    assert branch.startswith("torch.export cannot export Branch: ")
    assert branch.endswith("pass the Python file that creates the model (PATH.py:CALLABLE)")
    assert meta.startswith("Linear is on meta; move it")
    assert "\n" not in branch + meta


def test_a_function_of_jax(tmp_path, environment):
    raced, branch = lines_of(JAX, tmp_path, environment)
    assert_ok(raced, "MLP_FP32_JAX", 2)
    assert branch.startswith("jax.export cannot export branch: TracerBoolConversionError: ")
    assert "\n" not in branch


def test_a_model_of_keras(tmp_path, environment):
    first, second, own = lines_of(KERAS, tmp_path, environment)
    assert_ok(first, "ADDER_FP32_TF", 1)
    assert_ok(second, "ADDER_FP32_TF", 1)
    assert first[0]["workload"] == second[0]["workload"]
    assert "pass a PATH.py that defines the class" in own
    assert "\n" not in own
