"""OpenVINO programs: their files, recipes, compilation, and facts about compiled models.

Recipes are applied by NNCF, OpenVINO's library, and checked for their effect, in a child process:
NNCF imports scikit-learn and reads all weights.
"""

import hashlib
import logging
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

# OpenVINO's telemetry would start threads that report conversions to a server of Intel's, which
# would disturb a measured process. Without this package, it uses a stand-in that does nothing.
if "openvino_telemetry" not in sys.modules:
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # "not installed"

import openvino as ov

from comparative_benchmark.backends import child_process
from comparative_benchmark.backends.api import PhaseTimer, UnsupportedError
from comparative_benchmark.backends.recipes import Chosen, NotAppliedError, parse
from comparative_benchmark.openvino import DEFAULT_PRECISION, WIDENED
from openxla.benchmark.installation import install_command

# The other modules of this package import OpenVINO from here, without its telemetry.
__all__ = ["ov"]

DEVICE = "CPU"
# Without the number and branch of the build, which follow after a dash.
VERSION: str = ov.get_version().partition("-")[0]
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


def type_of(name: str) -> Any:
    """Returns the `openvino.Type` of an element type, by NumPy's name."""
    return ov.Type.bf16 if name == "bfloat16" else ov.Type(np.dtype(name))


def dtype_of(kind: Any) -> np.dtype[Any]:
    """Returns NumPy's type of an `openvino.Type`; OpenVINO takes bfloat16 for float16."""
    dtype: np.dtype[Any] = kind.to_dtype()
    return np.dtype(ml_dtypes.bfloat16) if kind == ov.Type.bf16 else dtype


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
    types: list[str] = [*weights, *(name for name in inputs if name in _FLOATS), "f32"]
    return types[0]


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
    counts: dict[str, Counter[str]] = {}
    for facts in _layers(compiled):
        counts.setdefault(facts["layerType"], Counter())[facts["runtimePrecision"]] += 1
    return {kind: dict(sorted(types.items())) for kind, types in sorted(counts.items())}


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


# Operators between a weight and its product.
_BETWEEN = frozenset({"Convert", "Multiply", "Subtract", "Reshape", "Transpose"})
_PRODUCTS, _CONSTANT = ("MatMul", "Einsum", "Convolution", "GroupConvolution"), "Constant"
# Embeddings are looked up, not multiplied; recipes do not change them.
_LOOKUPS = ("Gather",)


def apply_recipe(
    paths: Sequence[Path], recipe: Chosen, phase: PhaseTimer
) -> tuple[list[Path], dict[str, Any]]:
    """Compresses the weights of models; phase `lower`.

    Returns:
      Files of the compressed models, and a summary: `name`, the number of changed `layers` and of
      `linear` ones (products with weights), the type of their weights, the bytes of all weights
      before and after, the `properties` that the plug-in needs, and `versions`.

    Raises:
      UnsupportedError: NNCF is not installed, or it has no such recipe.
      RuntimeError: NNCF failed, or changed nothing.
    """
    arguments = {"paths": list(map(str, paths)), "recipe": recipe.label}
    told, _ = child_process.call(
        f"{__name__}:apply_here", arguments, phase, name="the process that compresses weights"
    )
    return [Path(path) for path in told["paths"]], told["applied"]


def apply_here(channel: child_process.Channel, paths: list[str], recipe: str) -> dict[str, Any]:
    """Compresses the weights of models in this process; see `apply_recipe`."""
    try:
        import nncf
    except ImportError as error:
        raise UnsupportedError(f"recipes need NNCF: {install_command('recipes')}") from error
    logging.getLogger("nncf").setLevel(logging.ERROR)
    chosen = parse(recipe)
    core = ov.Core()
    layers = linear = before = after = 0
    kinds: set[str] = set()
    made = []
    try:
        settings, weight_type, properties = chosen.configuration_in("openvino")
        for source in map(Path, paths):
            target = source.with_name(f"{source.stem}.{recipe}.xml")
            with channel.phase("lower"):
                model = nncf.compress_weights(
                    core.read_model(source),
                    ignored_scope=nncf.IgnoredScope(types=list(_LOOKUPS), validate=False),
                    **settings,
                )
                save(model, target)
            types = weight_types(model)
            linear += len(types)
            layers += types.count(weight_type)
            kinds.update(types)
            before += weights_of(source).stat().st_size
            after += weights_of(target).stat().st_size
            made.append(str(target))
    except (
        *(NotImplementedError, nncf.ValidationError, nncf.UnsupportedModelError),
        nncf.InvalidGroupSizeError,
    ) as error:
        told = str(error).strip().partition("\n")[0]
        raise UnsupportedError(f"NNCF cannot apply {recipe}: {told}") from error
    if not layers:
        raise NotAppliedError(
            f"{recipe} changed 0 of {linear} products with weights: expected weights in "
            f"{weight_type}, got {', '.join(sorted(kinds)) or 'none'}"
        )
    applied = {
        "name": recipe,
        "weight_class": weight_type,
        "layers": layers,
        "linear": linear,
        "bytes_before": before,
        "bytes_after": after,
        "properties": properties,
        "versions": {"nncf": nncf.__version__},
    }
    return {"paths": made, "applied": applied}


def weight_types(model: Any) -> list[str]:
    """Returns the types of the weights of a model's products, one for each product."""
    return [
        weight.get_output_element_type(0).get_type_name()
        for node in model.get_ops()
        if node.get_type_name() in _PRODUCTS and (weight := _weight(node)) is not None
    ]


def _weight(product: Any) -> Any | None:
    """Returns the constant that a product multiplies with; None without one."""
    for port in product.inputs():
        node = port.get_source_output().get_node()
        while node.get_type_name() in _BETWEEN:
            node = node.input(0).get_source_output().get_node()
        if node.get_type_name() == _CONSTANT:
            return node
    return None
