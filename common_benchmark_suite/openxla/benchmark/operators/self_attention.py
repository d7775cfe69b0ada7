"""self_attention: projections and attention of m positions of width k; no mask, no bias.

Heads are 64 wide; a k below 64 is one head.
"""

from typing import Any

from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.operators.attention import heads_of
from openxla.benchmark.operators.definition import Argument, Layer

_PROJECTIONS = ("query", "key", "value", "output")


def _input(m: int, k: int) -> Argument:
    heads_of(k)  # raises for an invalid k before anything is built
    return Argument(shape=(m, k))


def _torch(m: int, k: int, n: int) -> Any:
    import torch

    class SelfAttention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in _PROJECTIONS:
                setattr(self, name, torch.nn.Linear(k, k, bias=False))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = (self.query(x), self.key(x), self.value(x))
            heads = [part.view(m, heads_of(k), -1).transpose(0, 1)[None] for part in parts]
            y = torch.nn.functional.scaled_dot_product_attention(*heads)
            return self.output(y[0].transpose(0, 1).reshape(m, k))

    return SelfAttention()


def _jax(weights: Any, x: Any) -> Any:
    from openxla.benchmark.operators.attention import OPERATOR as ATTENTION
    from openxla.benchmark.operators.precision import linear_jax

    positions, width = x.shape
    parts = [linear_jax(x, weights[f"{name}.weight"]) for name in _PROJECTIONS[:3]]
    heads = [p.reshape(positions, heads_of(width), -1).swapaxes(0, 1)[None] for p in parts]
    y = ATTENTION.jax(*heads)[0].swapaxes(0, 1).reshape(positions, width)
    return linear_jax(y, weights["output.weight"])


def _tensorflow(weights: Any, x: Any) -> Any:
    import tensorflow as tf

    from openxla.benchmark.operators.attention import OPERATOR as ATTENTION

    positions, width = x.shape
    size = (positions, heads_of(width), width // heads_of(width))

    def times(value: Any, name: str) -> Any:
        return tf.linalg.matmul(value, weights[f"{name}.weight"], transpose_b=True)

    parts = [tf.reshape(times(x, name), size) for name in _PROJECTIONS[:3]]
    y = ATTENTION.tensorflow(*(tf.transpose(part, (1, 0, 2))[None] for part in parts))[0]
    return times(tf.reshape(tf.transpose(y, (1, 0, 2)), (positions, width)), "output")


OPERATOR = Layer(
    name="self_attention",
    description="m positions of width k: projection, attention in heads of 64, projection",
    uses=("m", "k"),
    arguments=lambda m, k, n: [_input(m, k)],
    results=lambda m, k, n: [Argument(shape=(m, k))],
    weights=lambda m, k, n: [
        TensorInit(f"{name}.weight", (k, k), stddev=k**-0.5) for name in _PROJECTIONS
    ],
    flops=lambda m, k, n: 8 * m * k * k + 4 * m * m * k,
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
