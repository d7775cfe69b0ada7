"""transformer_block: attention of 8 heads and an MLP, each after a norm, on [m, 16, k]."""

from typing import Any

from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.operators.definition import Argument, Layer
from openxla.benchmark.operators.layer_norm import EPSILON

HEADS, LENGTH, WIDER = 8, 16, 4


def _torch(m: int, k: int, n: int) -> Any:
    import torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1 = torch.nn.LayerNorm(k, eps=EPSILON)
            self.qkv = torch.nn.Linear(k, 3 * k, bias=False)
            self.proj = torch.nn.Linear(k, k, bias=False)
            self.norm2 = torch.nn.LayerNorm(k, eps=EPSILON)
            self.up = torch.nn.Linear(k, WIDER * k, bias=False)
            self.down = torch.nn.Linear(WIDER * k, k, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows, length, _ = x.shape
            parts = self.qkv(self.norm1(x)).view(rows, length, 3, HEADS, -1)
            query, key, value = parts.permute(2, 0, 3, 1, 4)
            y = torch.nn.functional.scaled_dot_product_attention(query, key, value)
            x = x + self.proj(y.transpose(1, 2).reshape(rows, length, -1))
            return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))

    return Block()


def _jax(weights: Any, x: Any) -> Any:
    import jax

    from openxla.benchmark.operators.attention import OPERATOR as ATTENTION
    from openxla.benchmark.operators.layer_norm import OPERATOR as NORM
    from openxla.benchmark.operators.precision import linear_jax, wide_jax

    def normal(value: Any, name: str) -> Any:
        return NORM.jax(value, weights[f"{name}.weight"], weights[f"{name}.bias"])

    rows, length, width = x.shape
    parts = linear_jax(normal(x, "norm1"), weights["qkv.weight"]).reshape(
        rows, length, 3, HEADS, -1
    )
    query, key, value = parts.transpose(2, 0, 3, 1, 4)
    y = ATTENTION.jax(query, key, value).swapaxes(1, 2)
    x = x + linear_jax(y.reshape(rows, length, width), weights["proj.weight"])
    up = linear_jax(normal(x, "norm2"), weights["up.weight"])
    active = jax.nn.gelu(wide_jax(up), approximate=False).astype(x.dtype)
    return x + linear_jax(active, weights["down.weight"])


def _tensorflow(weights: Any, x: Any) -> Any:
    import tensorflow as tf

    from openxla.benchmark.models.tf.operations import gelu
    from openxla.benchmark.operators.attention import OPERATOR as ATTENTION
    from openxla.benchmark.operators.layer_norm import OPERATOR as NORM

    def normal(value: Any, name: str) -> Any:
        return NORM.tensorflow(value, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def times(value: Any, name: str) -> Any:
        return tf.linalg.matmul(value, weights[f"{name}.weight"], transpose_b=True)

    rows, length, width = x.shape
    parts = tf.reshape(times(normal(x, "norm1"), "qkv"), (rows, length, 3, HEADS, -1))
    query, key, value = tf.unstack(tf.transpose(parts, (2, 0, 3, 1, 4)))
    y = tf.transpose(ATTENTION.tensorflow(query, key, value), (0, 2, 1, 3))
    x = x + times(tf.reshape(y, (rows, length, width)), "proj")
    return x + times(gelu(times(normal(x, "norm2"), "up")), "down")


def _weights(m: int, k: int, n: int) -> list[TensorInit]:
    matrices = {"qkv": (3 * k, k), "proj": (k, k), "up": (WIDER * k, k), "down": (k, WIDER * k)}
    return [
        *(
            TensorInit(f"{name}.weight", size, 0.0, size[1] ** -0.5)
            for name, size in matrices.items()
        ),
        *(TensorInit(f"{name}.weight", (k,), 1.0, 0.02) for name in ("norm1", "norm2")),
        *(TensorInit(f"{name}.bias", (k,), 0.0, 0.02) for name in ("norm1", "norm2")),
    ]


def _input(m: int, k: int) -> Argument:
    if k % HEADS:
        raise DefinitionError(f"k = {k} is not divisible by the {HEADS} heads of transformer_block")
    return Argument(shape=(m, LENGTH, k))


OPERATOR = Layer(
    name="transformer_block",
    description="8-head attention and an MLP on [m, 16, k]",
    uses=("m", "k"),
    arguments=lambda m, k, n: [_input(m, k)],
    results=lambda m, k, n: [Argument(shape=(m, LENGTH, k))],
    weights=_weights,
    flops=lambda m, k, n: m * LENGTH * (2 * (4 + 2 * WIDER) * k * k + 4 * LENGTH * k),
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
