"""OpenVINO programs: their files, their compilation, and facts about compiled models."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.openvino import DEFAULT_PRECISION, WIDENED
from comparative_benchmark.openvino.toolkit import ov

DEVICE = "CPU"
# Layers that compute products: most of the floating-point operations.
PRODUCTS = frozenset(
    {
        *("FullyConnected", "MatMul", "Convolution", "GroupConvolution", "Deconvolution"),
        *("ScaledDotProductAttentionWithKVCache", "ScaledDotProductAttention"),
        *("QKVProjection", "LLMMLP"),
    }
)
_FLOATS = ("f32", "f16", "bf16")
_CHUNK = 1 << 24
# Names in a saved model contain numbers that count up in a process.
_NAMES = re.compile(rb' names?="[^"]*"')


def save(model: Any, path: Path) -> None:
    """Writes a model as XML, and its weights as `.bin` next to it, in the types that they have."""
    ov.save_model(model, path, compress_to_fp16=False)


def chosen_precision(options: Sequence[str], element_type: str) -> str | None:
    """Returns the type to request; OpenVINO's own default is bfloat16 if the CPU supports it."""
    if DEFAULT_PRECISION in options:
        return None
    return "f32" if WIDENED in options else element_type


def weights_of(path: Path) -> Path:
    """Returns the file that holds the weights of a saved model."""
    return path.with_suffix(".bin")


def element_type(model: Any) -> str:
    """Returns the floating-point type of most of a model's weights, or of an input: f32, f16, bf16.

    `f32` for a model without either.
    """
    sizes: Counter[str] = Counter()
    for node in model.get_ops():
        if node.get_type_name() == "Constant":
            name = node.get_output_element_type(0).get_type_name()
            sizes[name] += math.prod(node.get_output_shape(0))
    weights = [name for name, _ in sizes.most_common() if name in _FLOATS]
    inputs = [port.get_element_type().get_type_name() for port in model.inputs]
    found: list[str] = [*weights, *(name for name in inputs if name in _FLOATS), "f32"]
    return found[0]


def configuration(*, threads: int, precision: str | None, cache_dir: str | None) -> dict[str, Any]:
    """Returns the properties to compile with.

    Args:
      threads: number of threads for inference.
      precision: type to compute in, if the CPU can; None for the plug-in's choice.
      cache_dir: directory of compiled models; None for no cache.
    """
    properties: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        # The affinity of the process selects the CPUs, for all backends alike. OpenVINO's own
        # choice would also leave out one of two threads of a core.
        "ENABLE_CPU_PINNING": False,
        "ENABLE_HYPER_THREADING": True,
    }
    if precision is not None:
        properties["INFERENCE_PRECISION_HINT"] = precision
    if cache_dir:
        properties["CACHE_DIR"] = cache_dir
    return properties


def precision_of(compiled: Any) -> str:
    """Returns the type that a compiled model computes in, chosen by the plug-in."""
    return str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())


def executed(compiled: Any) -> dict[str, dict[str, int]]:
    """Returns the number of layers by kind and type."""
    found: dict[str, Counter[str]] = {}
    for facts in _layers(compiled):
        found.setdefault(facts["layerType"], Counter())[facts["runtimePrecision"]] += 1
    return {kind: dict(sorted(types.items())) for kind, types in sorted(found.items())}


def runs_products_in(layers: Mapping[str, Mapping[str, int]], precision: str) -> bool:
    """Returns whether any product runs in that type; true if there are no products."""
    products = [types for kind, types in layers.items() if kind in PRODUCTS]
    return not products or any(precision in types for types in products)


def fingerprint(compiled: Any, path: Path) -> str:
    """Returns the sha256 of a compiled model: its inputs and the plug-in's choices.

    A compiled model has no file: its kernels are generated in memory when it is loaded. So the
    digest covers operators, attributes and weights, and kind, type, layout and kernel of each
    layer.

    Args:
      compiled: the compiled model.
      path: file of the model that it was compiled from.
    """
    digest = hashlib.sha256(_NAMES.sub(b"", path.read_bytes()))
    with weights_of(path).open("rb") as weights:
        while chunk := weights.read(_CHUNK):
            digest.update(chunk)
    for facts in _layers(compiled):
        digest.update(repr(sorted(facts.items())).encode())
    return digest.hexdigest()


def _layers(compiled: Any) -> Iterator[dict[str, str]]:
    """Yields facts about each executed layer, in execution order."""
    for node in compiled.get_runtime_model().get_ordered_ops():
        told = node.get_rt_info()
        yield {
            key: told[key].astype(str)
            for key in (
                *("layerType", "primitiveType", "runtimePrecision"),
                *("outputPrecisions", "outputLayouts", "execOrder"),
            )
            if key in told
        }
