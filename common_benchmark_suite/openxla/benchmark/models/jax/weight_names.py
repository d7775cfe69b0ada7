"""Where the tensors of common layers go: from torch's names to those of flax.nnx."""

from collections.abc import Iterator

from openxla.benchmark.models.jax.flax_model import CONV, LINEAR, Weight

Path = tuple[str | int, ...]


def linear(path: Path, name: str, *, bias: bool = True) -> Iterator[Weight]:
    """Weight and bias of an `nnx.Linear`."""
    yield (*path, "kernel"), f"{name}.weight", LINEAR
    if bias:
        yield (*path, "bias"), f"{name}.bias", None


def conv(path: Path, name: str, transpose: tuple[int, ...] = CONV) -> Iterator[Weight]:
    """Weight and bias of an `nnx.Conv`; two-dimensional unless another transpose is given."""
    yield (*path, "kernel"), f"{name}.weight", transpose
    yield (*path, "bias"), f"{name}.bias", None


def norm(path: Path, name: str) -> Iterator[Weight]:
    """Scale and offset of an `nnx.LayerNorm` or `nnx.GroupNorm`."""
    yield (*path, "scale"), f"{name}.weight", None
    yield (*path, "bias"), f"{name}.bias", None
