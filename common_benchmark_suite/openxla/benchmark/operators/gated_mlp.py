"""gated_mlp: two projections of [m, k] to width n, one gated by silu of the other, and back."""

from typing import Any

from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.operators.definition import Argument, Layer


def _torch(m: int, k: int, n: int) -> Any:
    import torch

    class GatedMlp(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = torch.nn.Linear(k, n, bias=False)
            self.up = torch.nn.Linear(k, n, bias=False)
            self.down = torch.nn.Linear(n, k, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))

    return GatedMlp()


def _jax(weights: Any, x: Any) -> Any:
    import jax

    from openxla.benchmark.operators.precision import linear_jax, wide_jax

    gate = linear_jax(x, weights["gate.weight"])
    active = jax.nn.silu(wide_jax(gate)).astype(x.dtype)
    return linear_jax(active * linear_jax(x, weights["up.weight"]), weights["down.weight"])


def _tensorflow(weights: Any, x: Any) -> Any:
    import tensorflow as tf

    from openxla.benchmark.operators.precision import wide_tensorflow

    def times(value: Any, name: str) -> Any:
        return tf.linalg.matmul(value, weights[f"{name}.weight"], transpose_b=True)

    active = tf.cast(tf.nn.silu(wide_tensorflow(times(x, "gate"))), x.dtype)
    return times(active * times(x, "up"), "down")


OPERATOR = Layer(
    name="gated_mlp",
    description="[m, k] to [m, n] twice, silu of one times the other, back to [m, k]",
    uses=("m", "k", "n"),
    arguments=lambda m, k, n: [Argument(shape=(m, k))],
    results=lambda m, k, n: [Argument(shape=(m, k))],
    weights=lambda m, k, n: [
        TensorInit("gate.weight", (n, k), stddev=k**-0.5),
        TensorInit("up.weight", (n, k), stddev=k**-0.5),
        TensorInit("down.weight", (k, n), stddev=n**-0.5),
    ],
    flops=lambda m, k, n: 6 * m * k * n,
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
