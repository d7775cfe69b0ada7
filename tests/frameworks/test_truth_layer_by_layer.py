"""A truth whose weights are widened layer by layer equals a float64 copy's."""

import json

import pytest
from agreement_support import need
from framework_process import run_script

pytestmark = pytest.mark.frameworks

SCRIPT = """
import contextlib, importlib, json, sys
from unittest import mock
import numpy as np
import torch
from comparative_benchmark.pt_inductor import reference

module, parameters, lies = sys.argv[1:]
model = importlib.import_module(module).create_model(**json.loads(parameters))
inputs = model.preprocess(model.generate_default_inputs())
given = [inputs]
types = [tensor.dtype for tensor in model.parameters()]
due = [reference.compute(model, inputs)[0]]
if hasattr(model, "max_new_tokens"):
    given.append(model.verification_inputs(inputs, [due[0][0][:, ::-1].copy()]))
    due.append(reference.compute(model, given[1])[0])
guess = reference._Draft.follow

def lie(self, token, positions):
    return torch.cat((token[:, None], 1 + guess(self, token, positions)[:, 1:] % 7), dim=1)

layered = mock.patch.object(reference, "forward_by_layer", wraps=reference.forward_by_layer)
no_room = mock.patch.object(reference, "_PART_FOR_A_COPY", 0.0)
lying = mock.patch.object(reference._Draft, "follow", lie)
with layered as forward, no_room, lying if lies == "lies" else contextlib.nullcontext():
    got = [reference.compute(model, values)[0] for values in given]
assert forward.call_count == len(given)
for due_outputs, got_outputs in zip(due, got, strict=True):
    for left, right in zip(due_outputs, got_outputs, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-10)
assert types == [tensor.dtype for tensor in model.parameters()]
"""
CASES = {
    "gemma": {"model_name": "gemma-tiny", "seq_len": 16, "max_new_tokens": 24},
    "gpt2": {"model_name": "gpt2-tiny", "seq_len": 16, "max_new_tokens": 8},
    "llama": {"model_name": "llama-tiny", "seq_len": 16},
    "t5_for_cond_gen": {"model_name": "t5-tiny", "seq_len": 16, "max_new_tokens": 8},
    # It casts pixels to the type of weights that wait: a copy is made all the same.
    "vit": {"model_name": "vit-tiny"},
    "resnet": {"model_name": "resnet-tiny"},
}


def _run(name, lies, environment):
    need("torch")
    need("transformers")
    parameters = {**CASES[name], "data_type": "bf16", "batch_size": 2}
    arguments = [
        f"openxla.benchmark.models.pt.{name}",
        json.dumps(parameters),
        "lies" if lies else "honest",
    ]
    run_script(SCRIPT, arguments, environment, framework="pt")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("gpt2", "vit") else pytest.mark.nightly)
        for name in CASES
    ],
)
def test_it_is_what_a_copy_of_the_model_gives(name, environment):
    _run(name, False, environment)


def test_a_draft_that_is_always_wrong_costs_time_alone(environment):
    _run("gemma", True, environment)


ROUNDS = """
import torch
from comparative_benchmark.pt_inductor import reference

class Rounds(torch.nn.Module):
    def __init__(self, where):
        super().__init__()
        self.inner, self.where = torch.nn.Linear(4, 4, dtype=torch.bfloat16), where

    def forward(self, x):
        if self.where == "output":
            return self.inner(x).float()
        return x * (1 + self.inner.bias)

x = torch.ones(2, 4, dtype=torch.bfloat16)
for where in ("output", "weight"):
    model = Rounds(where)
    try:
        reference.forward_by_layer(model, [x])
    except reference.RoundsError as error:
        assert "rounds to torch." in str(error)
    else:
        raise AssertionError(where)
    assert model.inner.bias.dtype == torch.bfloat16
"""


def test_a_part_that_rounds_is_refused(environment):
    need("torch")
    run_script(ROUNDS, [], environment, framework="pt")
