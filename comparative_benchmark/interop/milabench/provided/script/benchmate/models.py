"""Sizes of models."""

from typing import Any

_MIB = 1024**2


def _sizes(tensors: Any) -> "dict[str, Any]":
    count = size = 0
    for tensor in tensors:
        count += tensor.nelement()
        size += tensor.nelement() * tensor.element_size()
    return {"count": count, "size": size / _MIB, "unit": "MB"}


def model_size(model: Any) -> "dict[str, Any]":
    """Returns how many parameters and buffers a model of torch has, and how large they are."""
    return {"param": _sizes(model.parameters()), "buffer": _sizes(model.buffers())}
