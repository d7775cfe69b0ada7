"""Seeded tensors of layers used by several architectures, with torch's names.

Scales keep activations of order one; small biases make a missing bias visible.
"""

import math
from collections.abc import Iterator

from openxla.benchmark.models.architectures.base import TensorInit

# Scales queries and keys so that scores have a standard deviation of 2: each token attends to a few
# others. With 1, attention would be close to the mean over all tokens, and an implementation that
# confuses keys would go unnoticed.
ATTENTION_GAIN = math.sqrt(2)
# SiLU and GELU reduce a normal input's root mean square to about 0.6; the next matrix restores it.
AFTER_ACTIVATION_GAIN = 1.7


# Names of an attention's matrices in many checkpoints, and in our own modules.
PROJECTIONS = (
    (r"\bq_proj\b", "query"),
    (r"\bk_proj\b", "key"),
    (r"\bv_proj\b", "value"),
    (r"\b(o|out)_proj\b", "output"),
)


def linear(
    name: str, inputs: int, outputs: int, *, gain: float = 1.0, bias: bool = True
) -> Iterator[TensorInit]:
    """Yields the weight [out, in] and the bias of a layer that multiplies the scale by `gain`."""
    stddev = gain / math.sqrt(inputs)
    yield TensorInit(name=f"{name}.weight", shape=(outputs, inputs), stddev=stddev)
    if bias:
        yield TensorInit(name=f"{name}.bias", shape=(outputs,), stddev=0.1)


def conv(
    name: str, inputs: int, outputs: int, *kernel: int, gain: float = 1.0
) -> Iterator[TensorInit]:
    """Yields the weight [out, in, *kernel] and the bias of a convolution."""
    stddev = gain / math.sqrt(inputs * math.prod(kernel))
    yield TensorInit(name=f"{name}.weight", shape=(outputs, inputs, *kernel), stddev=stddev)
    yield TensorInit(name=f"{name}.bias", shape=(outputs,), stddev=0.1)


def batch_norm(name: str, size: int, gain: float = 1.0) -> Iterator[TensorInit]:
    """Yields scale, offset and statistics of a batch norm that multiplies the scale by `gain`."""
    yield TensorInit(name=f"{name}.weight", shape=(size,), mean=gain, stddev=0.1 * gain)
    yield TensorInit(name=f"{name}.bias", shape=(size,), stddev=0.1)
    yield TensorInit(name=f"{name}.running_mean", shape=(size,), stddev=0.1)
    yield TensorInit(name=f"{name}.running_var", shape=(size,), mean=1.0, stddev=0.1)
    yield TensorInit(name=f"{name}.num_batches_tracked", shape=(), dtype="I64")


def norm(name: str, size: int) -> Iterator[TensorInit]:
    """Yields scale and offset of a layer norm or group norm."""
    yield TensorInit(name=f"{name}.weight", shape=(size,), mean=1.0, stddev=0.2)
    yield TensorInit(name=f"{name}.bias", shape=(size,), stddev=0.1)
