"""Truth, reference and cost of a PyTorch model, and limits of its truth.

Work is counted on tensors without content: nothing is computed.
"""

import contextlib
import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop

from comparative_benchmark.backends.api import Array, ModelDefinition
from comparative_benchmark.backends.frameworks import torch_modules as modules
from comparative_benchmark.backends.frameworks.torch_modules import to_numpy
from comparative_benchmark.backends.host_settings import free_bytes
from comparative_benchmark.backends.model_protocols import ForeignModel
from comparative_benchmark.backends.recipes.definition import Rounding
from comparative_benchmark.pt_inductor import layer_by_layer
from comparative_benchmark.pt_inductor.quantization import QuantisedRun
from openxla.benchmark.artifacts.workload_store import WorkloadCost
from openxla.benchmark.models.pt.tensors import as_tensor
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.user_models.programs.program_model import rounded

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


def matrix_products(module_path: str, parameters: dict[str, Any]) -> list[list[int]]:
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


def remark(model: Any, inputs: Sequence[Array]) -> str | None:
    """Returns a remark on what the float64 run of a model rounds; None if nothing.

    The run is on tensors without content: nothing is computed.

    Raises:
      Exception: raised by the model if it looks at values, which do not exist.
    """
    fake = FakeTensorMode(allow_non_fake_inputs=True)

    def wide(tensor: torch.Tensor) -> torch.Tensor:
        found = fake.from_tensor(tensor.detach())
        return found.double() if found.is_floating_point() else found

    with torch.no_grad():
        copies: dict[int, Any] = {}
        for module in modules.of(model):
            for tensor in module.parameters():
                copies[id(tensor)] = torch.nn.Parameter(wide(tensor), requires_grad=False)
            copies |= {id(tensor): wide(tensor) for tensor in module.buffers()}
        # Copy before the mode is on, in which a tensor of another kind could not be copied.
        without_content = copy.deepcopy(model, copies)
        given = [wide(as_tensor(value)) for value in inputs]
        with fake, _Roundings() as found:
            without_content.forward(*given)
    if not found.seen:
        return None
    return (
        f"parts of it compute in {', '.join(sorted(found.seen))}, whatever the type of its weights"
    )


# Operations that only move numbers, or create exact ones, and do not round.
_EXACT = frozenset(
    f"aten::{name}"
    for name in (
        *("_to_copy", "_unsafe_view", "abs", "cat", "clone", "constant_pad_nd", "copy", "copy_"),
        *("fill", "fill_", "flip", "full_like", "gather", "index", "index_put", "index_put_"),
        *("index_select", "masked_fill", "masked_fill_", "maximum", "minimum", "neg", "ones_like"),
        *("relu", "repeat", "roll", "scatter", "stack", "tril", "triu", "where", "zeros_like"),
        *("lift_fresh", "lift_fresh_copy", "new_zeros", "new_ones", "new_empty", "empty_like"),
    )
)


class _Roundings(TorchDispatchMode):
    """Records types that float64 numbers are rounded to, and narrower types of computations."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given, narrow = _types((args, kwargs)), _types(result) - {torch.float64}
        computes = not func.is_view and func._schema.name not in _EXACT  # noqa: SLF001
        if torch.float64 in given or (given and computes):
            self.seen |= {str(dtype).removeprefix("torch.") for dtype in narrow}
        return result


def _types(values: Any) -> set[torch.dtype]:
    return {
        value.dtype
        for value in tree_leaves(values)
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }


# Share of the memory that is free next to the model; the rest is for computing.
_PART_FOR_A_COPY = 0.5


def compute(model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
    """Returns the outputs of the model in float64, and eagerly in its own type.

    The float64 model has the same weights as the model, so that for a 16-bit model only the
    computation differs, not the rounding of weights and inputs. If a float64 copy would take more
    than half of the memory, layers are widened one at a time (see `layer_by_layer`).

    A model may create tensors of the default type, which float64 layers refuse. It is then run
    again with float64 as the default type.
    """
    torch.set_grad_enabled(False)
    if isinstance(model, ForeignModel):
        return model.judged_by(inputs)
    tensors = [as_tensor(value) for value in inputs]
    same_type = in_own_type(model, inputs)
    try:
        return _arrays(_in_float64(model, tensors)), same_type
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        with contextlib.suppress(Exception), _float64_by_default():
            truth = _arrays(_in_float64(model, tensors))
            if all(value.dtype == np.float64 for value in truth if value.dtype.kind == "f"):
                return truth, same_type
        if "ouble" not in str(error):
            raise error  # noqa: TRY201  # hides the second run's error
        raise TypeError(
            "forward computes in float32 instead of float64, for example because of .float() or "
            f"dtype=torch.float32: {error}"
        ) from error


def _in_float64(model: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if layer_by_layer.float64_bytes(model) > free_bytes() * _PART_FOR_A_COPY:
        with contextlib.suppress(layer_by_layer.RoundsError):
            return layer_by_layer.forward(model, tensors)
    wide = copy.deepcopy(model)
    for module in modules.of(wide):
        module.double()
    return wide.forward(*(t.double() if t.is_floating_point() else t for t in tensors))


@contextlib.contextmanager
def _float64_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def in_own_type(model: Any, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of an eager run in the model's own type."""
    with torch.no_grad():
        return _arrays(model.forward(*[as_tensor(value) for value in inputs]))


def quantised(model: Any, inputs: Sequence[Array], rounding: Rounding) -> list[Array]:
    """Returns the outputs of an eager run that rounds as a recipe does."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # one operator that hides its products
    try:
        with QuantisedRun(model, rounding):
            return in_own_type(model, inputs)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def nearby(model: Any, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of an eager run on weights and inputs that are off by up to a spacing."""
    with changed_weights(model, np.random.Generator(np.random.Philox(0)), 1.0):
        return in_own_type(model, rounded(inputs))


@contextlib.contextmanager
def changed_weights(model: Any, random: np.random.Generator, spacings: float) -> Iterator[None]:
    """Moves floating-point weights by up to `spacings` inside the block."""
    tensors = [tensor for tensor in modules.tensors_of(model) if tensor.is_floating_point()]
    kept = [tensor.detach().clone() for tensor in tensors]
    try:
        for tensor in tensors:
            off = torch.as_tensor(random.uniform(-1, 1, tuple(tensor.shape)))
            step = spacings * torch.finfo(tensor.dtype).eps
            tensor.data.copy_(tensor.double() * (1 + step * off))
        yield
    finally:
        for tensor, value in zip(tensors, kept, strict=True):
            tensor.data.copy_(value)


def _arrays(outputs: Any) -> list[Any]:
    return [to_numpy(value) for value in as_tuple(outputs)]
