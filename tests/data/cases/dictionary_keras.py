"""A functional Keras model on a dictionary, given in another order."""

import keras
import numpy as np


def create_model():
    a = keras.Input((8,), name="a")
    b = keras.Input((4,), name="b")
    h = keras.layers.Dense(4)(a)
    return keras.Model({"a": a, "b": b}, {"s": h + b, "p": h * b})


def example_inputs():
    r = np.random.default_rng(0)
    return {
        "b": r.standard_normal((2, 4)).astype(np.float32),
        "a": r.standard_normal((2, 8)).astype(np.float32),
    }
