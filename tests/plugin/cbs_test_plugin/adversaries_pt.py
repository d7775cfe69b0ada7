"""Wrong BERTs in PyTorch."""

import types
from typing import Any

import torch

from cbs_test_plugin.adversaries import FUNCTIONS, rounding
from openxla.benchmark.models.pt import bert


class _Lazy(torch.Tensor):
    """A tensor that is computed when it is read, after the measurement."""

    @staticmethod
    def later(compute: Any) -> Any:
        made = torch.Tensor._make_subclass(_Lazy, torch.empty(0))
        made.compute = compute
        return made

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        computed = [value.compute() if isinstance(value, cls) else value for value in args]
        return function(*computed, **(kwargs or {}))


def _lazily(run: Any, ids: Any, mask: Any) -> Any:
    return _Lazy.later(lambda: run(ids, mask))


# Under the names that JAX has.
_ARRAYS = types.SimpleNamespace(
    lazily=_lazily,
    arange=torch.arange, full_like=torch.full_like, where=torch.where, roll=torch.roll,
    flip=torch.flip, empty=torch.empty,
)  # fmt: skip


class Adversary(torch.nn.Module):
    """A right model and its fault."""

    def __init__(self, inner: Any, fault: str) -> None:
        super().__init__()
        self.inner, self.fault = inner, fault
        self.kept: dict[str, Any] = {}

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        function = FUNCTIONS.get(self.fault)
        if function is None:
            return self.inner(input_ids, attention_mask)
        return function(self.inner, input_ids, attention_mask, _ARRAYS, self.kept)


def _compute_coarser(model: Any, fault: str) -> None:
    """Rounds weights and inputs of all linear layers, and nothing else."""
    rounded = rounding(fault, torch, lambda value: value.bfloat16().float())

    def coarser(module: Any, inputs: Any) -> Any:
        return (rounded(inputs[0].float(), None).to(inputs[0].dtype),)

    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.copy_(rounded(module.weight.float(), 0))
            module.register_forward_pre_hook(coarser)


def _spoil(model: Any, fault: str) -> None:
    layers = model.encoder.layer
    if fault == "norm-epsilon":
        for module in model.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.eps = 1e-3
    elif fault == "tanh-gelu":
        for layer in layers:
            layer.intermediate.intermediate_act_fn = torch.nn.GELU(approximate="tanh")
    elif fault == "head-dropped":
        size = layers[0].attention.self.attention_head_size
        layers[0].attention.output.dense.weight[:, :size] = 0
    elif fault == "positions-shifted":
        table = model.embeddings.position_embeddings.weight
        table.copy_(table.roll(1, 0))
    elif fault == "weights-of-before":
        torch.manual_seed(0)
        for weight in model.parameters():
            weight.add_(1e-3 * weight.std(unbiased=False) * torch.randn_like(weight))
    elif fault == "layer-skipped":
        del layers[-1]
    elif fault.startswith("computes-in"):
        _compute_coarser(model, fault)


def create_model(*, fault: str = "none", **parameters: Any) -> Any:
    """Returns the model with the given fault."""
    model = bert.create_model(**parameters)
    if fault == "none":
        return model
    with torch.no_grad():
        _spoil(model.model, fault)
    found = Adversary(model, fault)
    if fault == "precomputed":
        inputs = map(torch.as_tensor, model.preprocess(model.generate_default_inputs()))
        found.kept["output"] = model(*inputs)
    return found
