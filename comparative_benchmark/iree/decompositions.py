"""Decompositions of operators of an exported PyTorch program before IREE compiles it.

A function that returns `NotImplemented` leaves the operator unchanged.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions


def table() -> dict[Any, Any]:
    """Returns the decompositions by operator.

    These are core ATen, attention included: IREE 3.13 compiles scaled_dot_product_attention to a
    dedicated operation that is slow on CPU (BERT base, 128 tokens: 402 ms, against 228 ms
    decomposed). Keeping linear, layer_norm, softmax or gelu whole changes nothing (224 to 230 ms).
    Without decompositions compilation fails on boolean literals of rank 0.
    """
    rules: dict[Any, Any] = torch.export.default_decompositions()
    # Core ATen ends at batch norms with three results, which IREE does not lower.
    batch_norms = ("_native_batch_norm_legit_no_training", "_native_batch_norm_legit")
    rules.update(get_decompositions([getattr(torch.ops.aten, name) for name in batch_norms]))
    # The importer's versions compute in the type of their input, PyTorch's in float32.
    norms = ("native_layer_norm", "native_group_norm", "_softmax")
    rules.update(get_decompositions([getattr(torch.ops.aten, name) for name in norms]))
    rules[torch.ops.aten.view.default] = _view
    rules[torch.ops.aten.gelu.default] = _gelu
    rules[torch.ops.aten.mean.dim] = _mean
    rules[torch.ops.aten.avg_pool2d.default] = _avg_pool2d
    rules[torch.ops.aten.squeeze.dims] = _squeeze
    return rules


def _squeeze(x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """Writes a squeeze as a reshape: the importer cannot squeeze several dimensions.

    The backward pass of attention has it, after splitting a tensor of queries, keys and values.
    """
    left_out = {dim % x.ndim for dim in dims if x.shape[dim] == 1}
    return x.reshape([size for dim, size in enumerate(x.shape) if dim not in left_out])


def _avg_pool2d(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    *others: Any,
) -> Any:
    """Drops `ceil_mode` if windows tile the map, or one is larger than the map.

    EfficientNet ends with the latter. The importer pads the map to whole windows, always by one too
    many, and IREE's compiler fails.
    """
    is_plain = not any(padding) and len(others) < 2  # no separate divisor
    is_tiled = list(stride or kernel_size) == list(kernel_size)
    # A single number stands for height and width.
    window = [min(pair) for pair in zip([*kernel_size, *kernel_size][:2], x.shape[-2:])]
    if not (ceil_mode and is_plain and is_tiled) or any(
        size % length for size, length in zip(x.shape[-2:], window)
    ):
        return NotImplemented
    return torch.nn.functional.avg_pool2d(x, window)


def _gelu(x: torch.Tensor, *, approximate: str = "none") -> Any:
    """Expands the tanh form of GELU; the importer's own is off by 2e-5 in fp32."""
    if approximate != "tanh":
        return NotImplemented
    operator = torch.ops.aten.gelu
    return get_decompositions([operator])[operator.default](x, approximate)


def _mean(x: torch.Tensor, *arguments: Any, **options: Any) -> Any:
    """Sums 16-bit numbers in float32, as PyTorch does; the importer would sum in their type."""
    if x.dtype not in (torch.float16, torch.bfloat16) or options.get("dtype"):
        return NotImplemented
    return x.float().mean(*arguments, **options).to(x.dtype)


def _view(x: torch.Tensor, size: Sequence[int]) -> Any:
    """Views a tensor as another shape; copies it if its strides do not allow that.

    Decomposed attention has other strides than the traced operation, so a view after it may be
    impossible. For IREE, whose tensors have no strides, a copy costs nothing.
    """
    if x.is_contiguous():
        return NotImplemented
    return x.contiguous().view(size)
