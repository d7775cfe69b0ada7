"""Counts the work of a PyTorch model on tensors without content: nothing is computed."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop

from comparative_benchmark.backends.api import Array, ModelDefinition
from openxla.benchmark.artifacts.workload_store import WorkloadCost
from openxla.benchmark.models.pt.tensors import as_tensor
from openxla.benchmark.models.shared_model import as_tuple

_ATEN = torch.ops.aten


def _sdpa_backward_flop(_: Any, *operands: Any, out_val: Any, **__: Any) -> int:
    """Returns twice the flops of the forward pass: recomputation is a choice of the kernel."""
    return 2 * int(sdpa_flop(*operands[:3], out_val=out_val))


# PyTorch's table of formulas, and the attention of the CPU, which it lacks as of 2.13.
_FORMULAS: Mapping[Any, Callable[..., int]] = {
    **flop_registry,
    _ATEN._scaled_dot_product_flash_attention_for_cpu: sdpa_flop,  # noqa: SLF001  # its name
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: _sdpa_backward_flop,  # noqa: SLF001
}
# Operations that read only part of their operand.
_INDEXING = (_ATEN.embedding, _ATEN.gather, _ATEN.index, _ATEN.index_select, _ATEN.slice)
# A constant of the program text, moved to the device.
_CONSTANTS = (_ATEN.lift_fresh,)


def cost(model: Any, inputs: Sequence[Array]) -> WorkloadCost:
    """Returns flops and compulsory bytes of `model` on `inputs`.

    Kernels that a model brings itself (Triton, C++) hold no operations that could be counted.

    Raises:
      Exception: raised by the model if it looks at values, which do not exist.
    """
    counter, edges = _counted(model, inputs)
    moved = sum(counter.reads.values()) + sum(map(_bytes, edges))
    return WorkloadCost.counted(counter.flops, moved, of="the PyTorch model's operations")


def products(module_path: str, parameters: dict[str, Any]) -> list[list[int]]:
    """Returns the products of two matrices that a model runs on its default input.

    Batched products, as in attention, are not included.

    Args:
      module_path: the model's module.
      parameters: arguments of its `create_model`.

    Returns:
      m, k, n and the number of products, most arithmetic first.
    """
    model = ModelDefinition(module_path=module_path, parameters=parameters).create()
    inputs = as_tuple(model.preprocess(model.generate_default_inputs()))
    found = _counted(model, inputs)[0].products
    rows = [[*shape, count] for shape, count in found.items()]
    return sorted(rows, key=math.prod, reverse=True)


def _counted(model: Any, inputs: Sequence[Array]) -> "tuple[_Counter, list[torch.Tensor]]":
    """Returns the counter after a run, and the inputs and outputs."""
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True) as fake, _Counter() as counter:
        given = [fake.from_tensor(as_tensor(value)) for value in inputs]
        outputs = as_tuple(model.forward(*given))
    return counter, [*given, *outputs]


class _Counter(TorchDispatchMode):
    """Sees each operation before its tensors become fake: a real one is a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self.reads: dict[int, int] = {}
        self.products: Counter[tuple[int, int, int]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        packet = func._overloadpacket  # noqa: SLF001  # as PyTorch's own counter has it
        if packet not in _FORMULAS and func.namespace == "aten":
            with self:  # in inference mode composite operations arrive whole; this decomposes them
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        result = func(*args, **kwargs)
        if packet in _FORMULAS:
            self.flops += _FORMULAS[packet](*args, **kwargs, out_val=result)
        if packet in (_ATEN.mm, _ATEN.addmm):
            left, right = args[-2:]
            self.products[left.shape[0], left.shape[1], right.shape[1]] += 1
        if packet not in _CONSTANTS:
            self._note_weights(packet, tree_leaves((args, kwargs)), result)
        return result

    def _note_weights(self, packet: Any, operands: list[Any], result: Any) -> None:
        for operand in operands:
            if isinstance(operand, torch.Tensor) and not isinstance(operand, FakeTensor):
                whole = _bytes(operand)
                part = min(_bytes(result), whole) if packet in _INDEXING else whole
                address = operand.data_ptr()  # one weight may come as several tensors
                self.reads[address] = min(self.reads.get(address, 0) + part, whole)


def _bytes(tensor: torch.Tensor) -> int:
    size: int = tensor.numel() * tensor.element_size()
    return size
