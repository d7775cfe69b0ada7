"""A functional Keras model on two inputs."""

import keras
import numpy as np


def create_model():
    a = keras.Input((8,), name="a")
    b = keras.Input((4,), name="b")
    return keras.Model([a, b], keras.layers.Dense(4)(a) + b)


def example_inputs():
    r = np.random.default_rng(0)
    return r.standard_normal((2, 8)).astype(np.float32), r.standard_normal((2, 4)).astype(
        np.float32
    )
