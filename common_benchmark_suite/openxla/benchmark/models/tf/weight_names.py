"""Where the tensors of common layers go: from torch's names to those of `tf.layers`."""

from collections.abc import Iterator

from openxla.benchmark.models.tf.keras_model import CONV, LINEAR, Weight


def linear(path: str, name: str, *, bias: bool = True) -> Iterator[Weight]:
    """Weight and bias of a `Linear`."""
    yield f"{path}/kernel", f"{name}.weight", LINEAR
    if bias:
        yield f"{path}/bias", f"{name}.bias", None


def conv(
    path: str, name: str, transpose: tuple[int, ...] = CONV, *, bias: bool = True
) -> Iterator[Weight]:
    """Weight and bias of a `Conv`."""
    yield f"{path}/kernel", f"{name}.weight", transpose
    if bias:
        yield f"{path}/bias", f"{name}.bias", None


def norm(path: str, name: str) -> Iterator[Weight]:
    """Scale and offset of a `LayerNorm`."""
    yield f"{path}/scale", f"{name}.weight", None
    yield f"{path}/bias", f"{name}.bias", None


def batch_norm(path: str, name: str) -> Iterator[Weight]:
    """Scale, offset and statistics of a `BatchNorm`."""
    yield from norm(path, name)
    yield f"{path}/mean", f"{name}.running_mean", None
    yield f"{path}/var", f"{name}.running_var", None
