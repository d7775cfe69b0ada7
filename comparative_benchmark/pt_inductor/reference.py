"""Truth, reference and cost of a PyTorch model, and limits of its truth.

Work is counted on tensors without content: nothing is computed.

If a float64 copy of a model does not fit into memory, the model stays in its own type. Each layer
(an element of a `ModuleList`; elsewhere each module that holds weights itself) is float64 only
while it runs, with the same values that a float64 copy of the model would have, so the outputs are
the same.

A model that continues prompts would widen all its layers for each token. So tokens are drafted in
the model's own type, then a window of them is run in float64, which shows how many are correct
(speculative decoding: Leviathan, Kalman and Matias 2023, arXiv:2211.17192, in its greedy form).
Drafts affect only the time, never the outputs.
"""

import contextlib
import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry, sdpa_flop

from comparative_benchmark.backends.api import Array, ModelDefinition
from comparative_benchmark.backends.frameworks import torch_modules as modules
from comparative_benchmark.backends.frameworks.torch_modules import to_numpy
from comparative_benchmark.backends.host_settings import free_bytes
from comparative_benchmark.backends.model_protocols import ForeignModel
from comparative_benchmark.backends.recipes.definition import Rounding
from comparative_benchmark.pt_inductor.quantization import QuantisedRun
from openxla.benchmark.artifacts.workload_store import WorkloadCost
from openxla.benchmark.models.pt.greedy import GreedyModel, KeysValues, choose
from openxla.benchmark.models.pt.tensors import as_tensor
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.operators.in_torch import TrainingModel
from openxla.benchmark.training.in_torch import TrainableModel
from openxla.benchmark.user_models.programs.program_model import rounded

# Widening all layers takes as long as drafting about ten tokens, and nearly all drafts of a 16-bit
# model are correct.
_WINDOW = 32
_ATEN = torch.ops.aten
# Operations that read only part of their operand.
_INDEXING = (_ATEN.embedding, _ATEN.gather, _ATEN.index, _ATEN.index_select, _ATEN.slice)
# Operations that may return equal elements in any order.
_OPEN_ORDERS = (_ATEN.kthvalue, _ATEN.median, _ATEN.mode, _ATEN.sort, _ATEN.topk)
# Operations that draw other numbers in float64 than in float32, with the same seed.
_DRAWS = (
    *(_ATEN.rand, _ATEN.randn, _ATEN.rand_like, _ATEN.randn_like, _ATEN.normal, _ATEN.normal_),
    *(_ATEN.uniform_, _ATEN.exponential_, _ATEN.log_normal_, _ATEN.cauchy_, _ATEN.geometric_),
    *(_ATEN.bernoulli, _ATEN.bernoulli_, _ATEN.multinomial),
)
_WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_WIDEST = set(_WIDER.values())
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
_T = TypeVar("_T")
# Share of the memory that is free next to the model; the rest is for computing.
_PART_FOR_A_COPY = 0.5


def _sdpa_backward_flop(_: Any, *operands: Any, out_val: Any, **__: Any) -> int:
    """Returns twice the flops of the forward pass: recomputation is a choice of the kernel."""
    return 2 * int(sdpa_flop(*operands[:3], out_val=out_val))


def _conv_backward_flop(*operands: Any, **_: Any) -> int:
    """Returns one forward pass per gradient; PyTorch's formula ignores groups for the weight's."""
    gradient, *forward = operands[:-1]
    return int(sum(operands[-1][:2])) * int(
        flop_registry[_ATEN.convolution](*forward, out_val=gradient)
    )


# PyTorch's table of formulas, and the attention of the CPU, which it lacks as of 2.13.
_FORMULAS: Mapping[Any, Callable[..., int]] = {
    **flop_registry,
    _ATEN.convolution_backward: _conv_backward_flop,
    _ATEN._scaled_dot_product_flash_attention_for_cpu: sdpa_flop,  # noqa: SLF001  # its name
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: _sdpa_backward_flop,  # noqa: SLF001
}


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
    products = _counted(model, inputs)[0].products
    rows = [[*shape, count] for shape, count in products.items()]
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
        if packet is not _ATEN.lift_fresh:  # a constant of the program text
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
        return _wide(fake.from_tensor(tensor.detach()))

    with torch.no_grad():
        copies: dict[int, Any] = {}
        for module in modules.of(model):
            for tensor in module.parameters():
                copies[id(tensor)] = torch.nn.Parameter(wide(tensor), requires_grad=False)
            copies |= {id(tensor): wide(tensor) for tensor in module.buffers()}
        given = [wide(as_tensor(value)) for value in inputs]

        def types_seen(context: AbstractContextManager[None]) -> set[str]:
            # Copy before the mode is on, in which a tensor of another kind could not be copied.
            without_content = copy.deepcopy(model, dict(copies))
            roundings = _Roundings()
            with fake, roundings, context:
                without_content.forward(*given)
            return roundings.seen

        seen = _widest(types_seen)
    if not seen:
        return None
    types = ", ".join(sorted(seen))
    return f"parts of the model compute in {types}, regardless of the weights' type"


class _Roundings(TorchDispatchMode):
    """Records types that float64 numbers are rounded to, and narrower types of computations."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given, narrow = _types((args, kwargs)), _types(result) - _WIDEST
        computes = not func.is_view and func._schema.name not in _EXACT  # noqa: SLF001
        if given & _WIDEST or (given and computes):
            self.seen |= {str(dtype).removeprefix("torch.") for dtype in narrow}
        return result


def _types(values: Any) -> set[torch.dtype]:
    return {value.dtype for value in _floating(values)}


def compute(model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
    """Returns the outputs of the model in float64, and eagerly in its own type.

    The float64 model has the same weights as the model, so that for a 16-bit model only the
    computation differs, not the rounding of weights and inputs. If a float64 copy would take more
    than half of the memory, layers are widened one at a time (see `forward_by_layer`).

    A model may request float32 itself (`.float()`, `torch.zeros`). It gets float64 instead. If this
    run fails, or still rounds, the model gets what it requests.
    """
    torch.set_grad_enabled(False)
    if isinstance(model, ForeignModel):
        return model.judged_by(inputs)
    tensors = [as_tensor(value) for value in inputs]
    same_type = in_own_type(model, inputs)
    return _widest(lambda context: _arrays(_in_float64(model, tensors, context))), same_type


def _widest(run: Callable[[AbstractContextManager[None]], _T]) -> _T:
    """Returns the result of a run with float64 instead of float32, or if that fails, without."""
    try:
        return run(_float64_for_float32())
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        first = error.with_traceback(None)  # its frames hold a float64 copy
    try:
        return run(contextlib.nullcontext())
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception:
        raise first from None


def _in_float64(
    model: Any, tensors: Sequence[torch.Tensor], context: AbstractContextManager[None]
) -> Any:
    if float64_bytes(model) > free_bytes() * _PART_FOR_A_COPY:
        with contextlib.suppress(RoundsError):
            return forward_by_layer(model, tensors)
    wide = copy.deepcopy(model)
    for module in modules.of(wide):
        module._apply(_wide)  # noqa: SLF001  # `double` leaves complex numbers
    with context:
        return wide.forward(*map(_wide, tensors))


@contextlib.contextmanager
def _float64_for_float32() -> Iterator[None]:
    """Gives float64 to code that requests float32 or no type, or raises RoundsError."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widened():
            yield
    finally:
        torch.set_default_dtype(before)


class _Widened(_Roundings):
    """Replaces types in arguments of operations; raises RoundsError if one still rounds."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func._overloadpacket in _DRAWS:  # noqa: SLF001  # as PyTorch's own counter has it
            raise RoundsError("forward draws random numbers, which differ in float64")
        if func is not _ATEN.view.dtype:  # reads bits
            args, kwargs = tree_map_only(
                torch.dtype, lambda dtype: _WIDER.get(dtype, dtype), (args, kwargs or {})
            )
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if self.seen:
            raise RoundsError(f"forward computes in {min(self.seen)} instead of float64")
        return _wide(result) if func is _ATEN.lift_fresh.default else result


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
    """Moves floating-point weights by up to `spacings`, and equal elements, inside the block."""
    tensors = [tensor for tensor in modules.tensors_of(model) if tensor.is_floating_point()]
    kept = [tensor.detach().clone() for tensor in tensors]
    try:
        for tensor in tensors:
            off = torch.as_tensor(random.uniform(-1, 1, tuple(tensor.shape)))
            step = spacings * torch.finfo(tensor.dtype).eps
            tensor.data.copy_(tensor.double() * (1 + step * off))
        with _Perturbed(random, spacings * torch.finfo(torch.float32).eps):
            yield
    finally:
        for tensor, value in zip(tensors, kept, strict=True):
            tensor.data.copy_(value)


class _Perturbed(TorchDispatchMode):
    """Puts equal elements in a random order if PyTorch promises none, and moves bytes as numbers.

    A picture of bytes is exact, but the numbers that are computed from it are rounded. Bytes that
    may be a mask are not moved: its zeros and ones may be multiplied by huge numbers.
    """

    def __init__(self, random: np.random.Generator, step: float) -> None:
        super().__init__()
        self._random, self._step = random, step

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        names = [argument.name for argument in func._schema.arguments]  # noqa: SLF001
        given = dict(zip(names, args)) | kwargs
        packet = func._overloadpacket  # noqa: SLF001  # as PyTorch's own counter has it
        if packet not in _OPEN_ORDERS or "dim" not in names or given.get("stable"):
            return self._near(args, func(*args, **kwargs))
        axis = given.get("dim", -1)
        order = torch.as_tensor(self._random.permutation(args[0].shape[axis]))
        values, indices = func(args[0].index_select(axis, order), *args[1:], **kwargs)
        return values, order[indices]

    def _near(self, given: Sequence[Any], result: Any) -> Any:
        """Returns the result of an operation, moved if it turns bytes into numbers."""
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        is_of_bytes = [value.dtype for value in tensors] == [torch.uint8] and _floating(result)
        if not is_of_bytes or not (tensors[0] > 1).any():
            return result
        off = torch.as_tensor(self._random.uniform(-1, 1, tuple(result.shape)))
        return (result.double() * (1 + self._step * off)).to(result.dtype)


def _arrays(outputs: Any) -> list[Any]:
    return [to_numpy(value) for value in as_tuple(outputs)]


class RoundsError(RuntimeError):
    """A part of a model computes in a narrower type although its layer is float64."""


def forward_by_layer(model: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Returns the outputs of `model.forward` in float64.

    Args:
      model: in its own type, and unchanged afterwards.
      tensors: its inputs, in its own type.

    Raises:
      RoundsError: the result would not be exact enough for a truth.
    """
    if isinstance(model, GreedyModel):
        return _generate(model, tensors)
    if isinstance(model, TrainingModel | TrainableModel):
        raise RoundsError("layers are float64 only in forward, so gradients would be rounded")
    with _layers_in_float64(model):
        return model.forward(*map(_wide, tensors))


def float64_bytes(model: Any) -> int:
    """Returns the memory that a float64 copy of the model's weights takes."""
    tensors = {id(tensor): tensor for tensor in modules.tensors_of(model)}
    return sum(8 * t.numel() for t in tensors.values() if t.is_floating_point())


def _generate(
    model: GreedyModel, inputs: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `GenerationModel.generate`."""
    prompt, given = inputs[: model.prompt_inputs], inputs[model.prompt_inputs :]
    first, count = model.first_position(*prompt), model.max_new_tokens
    draft = None if given else _Draft(model, prompt)
    with _layers_in_float64(model):
        start, cache = model.prefill(*map(_wide, prompt))
    logits, tokens = start[:, None], choose(start)[:, None]
    while (done := tokens.shape[1]) < count:
        until = min(done + _WINDOW, count)
        positions = torch.arange(first + done - 1, first + until - 1)
        if draft is None:
            window = given[0][:, done - 1 : until - 1]
        else:
            window = draft.follow(tokens[:, -1], positions)
        with _layers_in_float64(model):
            read, cache = model.read(window, positions, cache)
        chosen = choose(read)
        # Tokens after a wrong one are wrong as well.
        kept = until - done if draft is None else 1 + _agreeing(window[:, 1:], chosen[:, :-1])
        tokens = torch.cat((tokens, chosen[:, :kept]), dim=1)
        logits = torch.cat((logits, read[:, :kept]), dim=1)
    return tokens, logits


class _Draft:
    """Guesses the next tokens in the model's own type."""

    def __init__(self, model: GreedyModel, prompt: Sequence[torch.Tensor]) -> None:
        self._model = model
        self._cache: KeysValues
        _, self._cache = model.prefill(*prompt)

    def follow(self, token: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Returns a token of each row, and guesses after it: i32[batch, len(positions)].

        All of them are read, so that the cache covers everything before the next window, however
        many of these tokens are kept; later entries are overwritten before they are read.
        """
        window = [token]
        for position in positions:
            logits, self._cache = self._model.decode(window[-1], position[None], self._cache)
            window.append(choose(logits))
        return torch.stack(window[:-1], dim=1)


def _agreeing(left: torch.Tensor, right: torch.Tensor) -> int:
    """Returns the number of leading columns in which two matrices agree in all rows."""
    return int((left == right).all(dim=0).cumprod(dim=0).sum())


def _wide(value: torch.Tensor) -> torch.Tensor:
    is_exact = not (value.is_floating_point() or value.is_complex())
    return value if is_exact else value.to(torch.promote_types(value.dtype, torch.float64))


@contextlib.contextmanager
def _layers_in_float64(model: Any) -> Iterator[None]:
    """Makes each layer of a model compute in float64 inside the block."""
    layers = [layer for root in modules.of(model) for layer in _layers(root)]
    hooks = []
    try:
        for module, tensors in layers:
            widening = _Widening(tensors)
            hooks.append(module.register_forward_pre_hook(widening.start))
            hooks.append(module.register_forward_hook(widening.end, always_call=True))
        with _NothingRounded([tensor for _, tensors in layers for tensor in tensors]):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def _layers(root: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, list[torch.Tensor]]]:
    """Yields modules, each with the tensors that are float64 while it runs."""
    layers = {
        layer
        for module in root.modules()
        if isinstance(module, torch.nn.ModuleList)
        for layer in module
    }
    for module in root.modules():
        is_layer = module in layers
        tensors = [
            tensor
            for tensor in (*module.parameters(is_layer), *module.buffers(is_layer))
            if tensor.is_floating_point() and tensor.dtype != torch.float64
        ]
        if tensors:
            yield module, tensors


class _Widening:
    """Widens tensors at the start of a module's forward, and restores them at its end."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        self._narrow: list[tuple[torch.Tensor, torch.Tensor]] = []

    def start(self, *_: Any) -> None:
        # Except tensors that an enclosing module, or one that shares them, has widened.
        self._narrow = [(t, t.data) for t in self._tensors if t.dtype != torch.float64]
        for tensor, values in self._narrow:
            tensor.data = values.double()

    def end(self, *_: Any) -> None:
        for tensor, values in self._narrow:
            tensor.data = values
        self._narrow = []


class _NothingRounded(TorchDispatchMode):
    """Refuses operations that round: their outputs would not be a truth.

    Operations on integers only are the same in a float64 copy.
    """

    def __init__(self, weights: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._narrow_weights = {weight.untyped_storage().data_ptr() for weight in weights}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        narrow = [t.dtype for t in _floating(result) if t.dtype not in _WIDEST]
        # A view of weights whose layer has not started computes nothing.
        if narrow and not func.is_view and any(map(self._is_exact, _floating((args, kwargs)))):
            raise RoundsError(f"{func} rounds to {narrow[0]} although its layer is float64")
        return result

    def _is_exact(self, value: torch.Tensor) -> bool:
        return value.dtype in _WIDEST or value.untyped_storage().data_ptr() in self._narrow_weights


def _floating(values: Any) -> list[torch.Tensor]:
    return [
        value
        for value in tree_leaves(values)
        if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
    ]
