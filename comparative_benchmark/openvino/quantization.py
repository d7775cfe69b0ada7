"""Recipes by NNCF, OpenVINO's library, applied to a converted model and checked for their effect.

In a child process, as for ONNX Runtime: NNCF imports scikit-learn and reads all weights.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.backends import child_process
from comparative_benchmark.backends.api import PhaseTimer, UnsupportedError
from comparative_benchmark.backends.recipes import Chosen, NotAppliedError, parse
from comparative_benchmark.openvino import program
from openxla.benchmark.installation import install_command

# Operators between a weight and its product.
_BETWEEN = frozenset({"Convert", "Multiply", "Subtract", "Reshape", "Transpose"})
_PRODUCTS, _CONSTANT = ("MatMul", "Einsum", "Convolution", "GroupConvolution"), "Constant"
# Embeddings are looked up, not multiplied; recipes do not change them.
_LOOKUPS = ("Gather",)


def apply(
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
    """Compresses the weights of models in this process; see `apply`."""
    from comparative_benchmark.openvino.toolkit import ov

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
                program.save(model, target)
            found = weight_types(model)
            linear += len(found)
            layers += found.count(weight_type)
            kinds.update(found)
            before += program.weights_of(source).stat().st_size
            after += program.weights_of(target).stat().st_size
            made.append(str(target))
    except (
        *(NotImplementedError, nncf.ValidationError, nncf.UnsupportedModelError),
        nncf.InvalidGroupSizeError,
    ) as error:
        told = str(error).strip().partition("\n")[0]
        raise UnsupportedError(f"NNCF cannot apply {recipe}: {told}") from error
    if not layers:
        raise NotAppliedError(
            f"{recipe} changed 0 of {linear} products with weights: these are "
            f"{', '.join(sorted(kinds)) or 'none'}, not {weight_type}"
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
