"""moe: a router sends each row of [m, k] to 2 of 8 gated MLPs of width n.

All experts compute all rows, and those not chosen have weight 0, because compilers differ widely in
their support for shapes that depend on values. The router computes in at least fp32, as in Mixtral
and DeepSeek, and recipes skip it, because another choice of experts would be another function.
"""

from typing import Any

from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.operators.definition import Argument, Layer
from openxla.benchmark.operators.gated_mlp import OPERATOR as EXPERT

EXPERTS, CHOSEN = 8, 2
ROUTER = "router"


def _torch(m: int, k: int, n: int) -> Any:
    import torch

    class MixtureOfExperts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = torch.nn.Parameter(torch.empty(EXPERTS, k))
            self.experts = torch.nn.ModuleList(EXPERT.torch(m, k, n) for _ in range(EXPERTS))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = torch.promote_types(x.dtype, torch.float32)
            values, places = (x.to(wide) @ self.router.to(wide).T).topk(CHOSEN, dim=-1)
            shares = torch.zeros(m, EXPERTS, dtype=wide, device=x.device)
            shares = shares.scatter(1, places, values.softmax(-1)).to(x.dtype)
            parts = [expert(x) for expert in self.experts]
            return sum(shares[:, i, None] * part for i, part in enumerate(parts))

    return MixtureOfExperts()


def _expert(weights: Any, index: int) -> dict[str, Any]:
    names = ("gate.weight", "up.weight", "down.weight")
    return {name: weights[f"experts.{index}.{name}"] for name in names}


def _jax(weights: Any, x: Any) -> Any:
    import jax

    from openxla.benchmark.operators.precision import wide_jax

    values, places = jax.lax.top_k(wide_jax(x) @ wide_jax(weights[ROUTER]).T, CHOSEN)
    chosen = jax.nn.one_hot(places, EXPERTS, dtype=values.dtype)
    shares = (jax.nn.softmax(values, axis=-1)[:, :, None] * chosen).sum(1).astype(x.dtype)
    parts = [EXPERT.jax(_expert(weights, index), x) for index in range(EXPERTS)]

    def share_of(i: int, part: Any) -> Any:
        # The same product; its gradient is a sum over a row, which PyTorch takes in fp32.
        return (wide_jax(shares[:, i, None]) * wide_jax(part)).astype(x.dtype)

    return sum(share_of(i, part) for i, part in enumerate(parts))


def _tensorflow(weights: Any, x: Any) -> Any:
    import tensorflow as tf

    from openxla.benchmark.operators.precision import wide_tensorflow

    router = wide_tensorflow(weights[ROUTER])
    logits = tf.linalg.matmul(wide_tensorflow(x), router, transpose_b=True)
    values, places = tf.math.top_k(logits, CHOSEN)
    chosen = tf.one_hot(places, EXPERTS, dtype=values.dtype)
    shares = tf.reduce_sum(tf.nn.softmax(values)[:, :, None] * chosen, 1)
    shares = tf.cast(shares, x.dtype)
    parts = [EXPERT.tensorflow(_expert(weights, index), x) for index in range(EXPERTS)]
    return tf.add_n([shares[:, i, None] * part for i, part in enumerate(parts)])


def _weights(m: int, k: int, n: int) -> list[TensorInit]:
    return [
        TensorInit(ROUTER, (EXPERTS, k), stddev=k**-0.5),
        *(
            TensorInit(f"experts.{index}.{init.name}", init.shape, stddev=init.stddev)
            for index in range(EXPERTS)
            for init in EXPERT.weights(m, k, n)
        ),
    ]


OPERATOR = Layer(
    name="moe",
    description="[m, k] through 2 of 8 gated MLPs of width n; all 8 are computed",
    uses=("m", "k", "n"),
    arguments=lambda m, k, n: [Argument(shape=(m, k))],
    results=lambda m, k, n: [Argument(shape=(m, k))],
    weights=_weights,
    flops=lambda m, k, n: EXPERTS * (6 * m * k * n + 2 * m * k),
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
