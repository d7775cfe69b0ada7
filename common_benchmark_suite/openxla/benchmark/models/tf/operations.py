"""Operations in TensorFlow that lose no digits: products summed in at least float32, and GELU.

TensorFlow lets the kernel or compiler choose the accumulation type of 16-bit products: its own
kernels and XLA for CPUs use float32, IREE float16 (docs/design/0009-precision-of-runtimes.md).
XLA's operations can specify the type, but run nowhere else, so they are only used in functions that
are traced within `lowered_by_xla`. `tf.nn.gelu` is the same as ours, except that it rounds its
constants to float32 in any type, which would cost a float64 run eight digits.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

_LOWERED_BY_XLA = ContextVar("_LOWERED_BY_XLA", default=False)
_DIFFERENTIABLE = ContextVar("_DIFFERENTIABLE", default=False)


def at_least_float32(dtype: tf.DType) -> tf.DType:
    """Returns float32 for the 16-bit types, other types unchanged."""
    return tf.float32 if dtype.size < tf.float32.size else dtype


@contextmanager
def lowered_by_xla() -> Iterator[None]:
    """While active, functions are traced for XLA's bridge only."""
    token = _LOWERED_BY_XLA.set(True)
    try:
        yield
    finally:
        _LOWERED_BY_XLA.reset(token)


@contextmanager
def differentiable() -> Iterator[None]:
    """While active, traced functions have gradients, which XLA's operations lack.

    Not the default, because it adds operations to the graph, and so to exported programs.
    """
    token = _DIFFERENTIABLE.set(True)
    try:
        yield
    finally:
        _DIFFERENTIABLE.reset(token)


def matmul(first: Any, second: Any, *, transpose_b: bool = False) -> tf.Tensor:
    """Returns `tf.matmul` of [..., n, k] and [..., k, m], or [..., m, k] with `transpose_b`."""
    first, second = tf.convert_to_tensor(first), tf.convert_to_tensor(second)
    wide = at_least_float32(first.dtype)
    if wide == first.dtype or not _LOWERED_BY_XLA.get():
        return tf.matmul(first, second, transpose_b=transpose_b)
    if not _DIFFERENTIABLE.get():
        return _dot(first, second, wide, transpose_b=transpose_b)

    def product(first: tf.Tensor, second: tf.Tensor) -> Any:
        def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            of_first = matmul(upstream, second, transpose_b=not transpose_b)
            left, right = (upstream, first) if transpose_b else (first, upstream)
            return of_first, matmul(tf.linalg.matrix_transpose(left), right)

        return _dot(first, second, wide, transpose_b=transpose_b), gradients

    return tf.custom_gradient(product)(first, second)


def _dot(first: tf.Tensor, second: tf.Tensor, wide: tf.DType, *, transpose_b: bool) -> tf.Tensor:
    from tensorflow.compiler.tf2xla.python import xla
    from tensorflow.compiler.xla import xla_data_pb2

    rank = len(first.shape)
    numbers = xla_data_pb2.DotDimensionNumbers(
        lhs_batch_dimensions=range(rank - 2),
        rhs_batch_dimensions=range(rank - 2),
        lhs_contracting_dimensions=[rank - 1],
        rhs_contracting_dimensions=[rank - 1 if transpose_b else rank - 2],
    )
    summed = xla.dot_general(first, second, numbers, preferred_element_type=wide, use_v2=True)
    return tf.cast(summed, first.dtype)


def conv2d(
    x: tf.Tensor, kernel: Any, strides: tuple[int, int], padding: tuple[tuple[int, int], ...]
) -> tf.Tensor:
    """Returns a convolution of pictures, channels-last.

    Args:
      x: [batch, height, width, inputs].
      kernel: [height, width, inputs, outputs].
      strides: over height and width.
      padding: zeros before and after, of height and width.
    """
    kernel = tf.convert_to_tensor(kernel)
    wide = at_least_float32(x.dtype)
    if wide == x.dtype or not _LOWERED_BY_XLA.get():
        around: Any = ((0, 0), *padding, (0, 0)) if any(map(any, padding)) else "VALID"
        return tf.nn.conv2d(x, kernel, (1, *strides, 1), around)
    if not _DIFFERENTIABLE.get():
        return _conv(x, kernel, strides, padding, wide)

    def product(x: tf.Tensor, kernel: tf.Tensor) -> Any:
        def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            around = [0, 0, *padding[0], *padding[1], 0, 0]
            how: Any = {"padding": "EXPLICIT", "explicit_paddings": around}
            how |= {"strides": (1, *strides, 1), "out_backprop": upstream}
            return (
                tf.raw_ops.Conv2DBackpropInput(input_sizes=x.shape, filter=kernel, **how),
                tf.raw_ops.Conv2DBackpropFilter(input=x, filter_sizes=kernel.shape, **how),
            )

        return _conv(x, kernel, strides, padding, wide), gradients

    return tf.custom_gradient(product)(x, kernel)


def _conv(
    x: tf.Tensor,
    kernel: tf.Tensor,
    strides: tuple[int, int],
    padding: tuple[tuple[int, int], ...],
    wide: tf.DType,
) -> tf.Tensor:
    from tensorflow.compiler.tf2xla.python import xla
    from tensorflow.compiler.xla import xla_data_pb2

    numbers = xla_data_pb2.ConvolutionDimensionNumbers(
        input_batch_dimension=0,
        input_spatial_dimensions=[1, 2],
        input_feature_dimension=3,
        kernel_spatial_dimensions=[0, 1],
        kernel_input_feature_dimension=2,
        kernel_output_feature_dimension=3,
        output_batch_dimension=0,
        output_spatial_dimensions=[1, 2],
        output_feature_dimension=3,
    )
    summed = xla.conv(
        x, kernel, strides, padding, (1, 1), (1, 1), numbers,
        preferred_element_type=wide, use_v2=True,
    )  # fmt: skip
    # TensorFlow does not infer the shape of XLA's operation.
    spatial = [
        (size + sum(around) - taps) // stride + 1
        for size, around, taps, stride in zip(x.shape[1:3], padding, kernel.shape, strides)
    ]
    summed.set_shape((x.shape[0], *spatial, kernel.shape[3]))
    return tf.cast(summed, x.dtype)


def gelu(x: tf.Tensor) -> tf.Tensor:
    """GELU (Hendrycks and Gimpel 2016, arXiv:1606.08415), in at least float32."""
    wide = tf.cast(x, at_least_float32(x.dtype))
    # TensorFlow's TFLite converter recognises GELU by this order of factors.
    return tf.cast(0.5 * wide * tf.math.erfc(-wide * math.sqrt(0.5)), x.dtype)


def gelu_tanh(x: tf.Tensor) -> tf.Tensor:
    """The tanh approximation of GELU, from the same paper."""
    wide = tf.cast(x, at_least_float32(x.dtype))
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide * wide * wide)
    return tf.cast(0.5 * wide * (1.0 + tf.tanh(inner)), x.dtype)
