"""A Keras model that was compiled with a loss."""

import keras
import numpy as np


def create_model():
    m = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(4),
        ]
    )
    m.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return m


rng = np.random.default_rng(0)


def example_batch():
    return rng.standard_normal((16, 8)).astype(np.float32), rng.integers(0, 4, (16,)).astype(
        np.int32
    )
