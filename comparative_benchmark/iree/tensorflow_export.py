"""Exports TensorFlow models to IREE, through the StableHLO that TensorFlow's XLA bridge makes.

TensorFlow is used only if a model's module has imported it.
"""

import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from comparative_benchmark.backends.api import Array, BackendContext
from comparative_benchmark.iree import program

# An operation of a dialect that IREE does not know; XLA inserts it around loops.
_COPY = re.compile(r"= mhlo\.copy (%[\w#]+) : (tensor<[^>]*>)")
_BOOLEANS = re.compile(r'dense<"0x([0-9A-Fa-f]+)"> : tensor<((?:\d+x)+)i1>')


def hide_gpus() -> None:
    """Keeps TensorFlow, which only exports here, on the CPU."""
    if tf := sys.modules.get("tensorflow"):
        tf.config.set_visible_devices([], "GPU")


def is_model(model: Any) -> bool:
    """Returns whether a model, or anything that it holds, is one of TensorFlow's objects."""
    tf = sys.modules.get("tensorflow")
    if tf is None:
        return False
    trackable = tf.__internal__.tracking.Trackable
    return any(isinstance(part, trackable) for part in (model, *vars(model).values()))


def export(model: Any, inputs: Sequence[Array], context: BackendContext) -> program.ImportedProgram:
    """Returns the program of `model.forward`; phases `trace` and `lower`."""
    import tensorflow as tf

    from comparative_benchmark.backends.frameworks import tensorflow_models

    specs = [tf.TensorSpec(value.shape, value.dtype) for value in inputs]

    with context.phase("trace"):
        function = tensorflow_models.function_of(model.forward, jit_compile=True)
        concrete = function.get_concrete_function(*specs)
    with context.phase("lower"):
        text = function.experimental_get_compiler_ir(*specs)(stage="stablehlo")
        held = tensorflow_models.captured(concrete)
        # Captured values come after the inputs.
        return program.from_stablehlo(
            as_iree_reads(text), list(held), list(held.values()), first=len(inputs)
        )


def as_iree_reads(text: str) -> str:
    """Converts StableHLO of TensorFlow 2.21 to the form that IREE 3.13 reads.

    TensorFlow packs boolean constants as bits, IREE reads bytes; a copy becomes a reshape to the
    same shape.
    """
    text = _COPY.sub(r"= stablehlo.reshape \1 : (\2) -> \2", text)
    return _BOOLEANS.sub(_with_bytes, text)


def _with_bytes(constant: "re.Match[str]") -> str:
    digits, shape = constant.groups()
    count = np.prod([int(size) for size in shape.split("x")[:-1]], dtype=np.int64)
    packed = np.frombuffer(bytes.fromhex(digits), np.uint8)
    bits = np.unpackbits(packed, count=int(count), bitorder="little")
    return f'dense<"0x{bits.tobytes().hex()}"> : tensor<{shape}i1>'
