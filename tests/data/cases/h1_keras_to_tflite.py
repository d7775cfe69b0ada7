"""Keras functional model through TFLite, OpenVINO and IREE.

RIGHT: `cbs run h1_keras_to_tflite.py --backend tflite:native,tf_xla:graph -w 1 -iter 3` (fresh root): both `ok`.
"""

import keras
import numpy as np


def create_model():
    keras.utils.set_random_seed(0)
    i = keras.Input((8,))
    h = keras.layers.Dense(16, activation="relu")(i)
    return keras.Model(i, keras.layers.Dense(4)(h))


def example_inputs():
    return np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
