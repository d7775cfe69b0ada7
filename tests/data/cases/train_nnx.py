"""An nnx module with a loss; batches differ."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

OPTIMIZER = "sgd"


class Net(nnx.Module):
    def __init__(self, rngs):
        self.a = nnx.Linear(8, 32, rngs=rngs)
        self.bn = nnx.BatchNorm(32, rngs=rngs)
        self.b = nnx.Linear(32, 4, rngs=rngs)
        self.d = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        return self.b(self.d(nnx.relu(self.bn(self.a(x)))))


def create_model():
    return Net(nnx.Rngs(0))


def loss(model, x, y):
    logp = jax.nn.log_softmax(model(x))
    return -jnp.mean(jnp.take_along_axis(logp, y[:, None], -1))


rng = np.random.default_rng(0)


def example_batch():
    return rng.standard_normal((16, 8)).astype(np.float32), rng.integers(0, 4, (16,)).astype(
        np.int32
    )
