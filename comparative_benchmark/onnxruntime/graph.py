"""ONNX graphs: operators and identity, as exported, quantised and optimized.

If ONNX Runtime has no kernel for a node's type, it silently runs the node in float32, between casts
that it inserts (`InsertCastTransformer`). So the graph that it runs is compared with the exported
one. Weights are read only for the identity.

Recipes by its own quantiser are applied, and graphs are optimized to a file, in child processes:
a second session and all weights would count towards the memory of the measured session, and
writing towards its compile time.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec
import onnx
from onnx import TensorProto

from comparative_benchmark.backends import child_process
from comparative_benchmark.backends.api import PhaseTimer, UnsupportedError
from comparative_benchmark.backends.exported_programs import digest_of_parts
from comparative_benchmark.backends.recipes import Chosen, NotAppliedError, parse

# Nodes that compute products: most of the floating-point operations.
PRODUCTS = frozenset(
    {
        *("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "Attention"),
        # ONNX Runtime's fusions of them.
        *("FusedMatMul", "FusedGemm", "FusedConv", "TransposeMatMul", "FusedMatMulActivation"),
        *("MultiHeadAttention", "GroupQueryAttention", "NhwcFusedConv"),
    }
)
# Sizes of the floating-point types, in bytes, by the name in results.
_SIZES: Mapping[str, int] = {"float16": 2, "bfloat16": 2, "float": 4, "double": 8}
_INSERTED = "InsertedPrecisionFreeCast_"
_CHUNK = 1 << 24


@attrs.frozen(kw_only=True)
class GraphSummary:
    """The operators of a graph.

    Attributes:
      nodes: number of nodes.
      operators: by floating-point type of their operands, the number of nodes of each operator.
      inserted_casts: number of casts that ONNX Runtime inserted to run nodes in another type.
    """

    nodes: int
    operators: Mapping[str, Mapping[str, int]]
    inserted_casts: int = 0

    def products(self, element_type: str) -> int:
        """Returns the number of products with operands of that type."""
        counts = self.operators.get(element_type, {})
        return sum(count for name, count in counts.items() if name in PRODUCTS)


def load(path: Path) -> onnx.ModelProto:
    """Reads a model without its weights."""
    return onnx.load(str(path), load_external_data=False)


def summarize(model: onnx.ModelProto) -> GraphSummary:
    """Returns the operators of a model, by the declared types of its values."""
    operators: dict[str, Counter[str]] = {}
    nodes = inserted = 0
    for graph in _graphs(model.graph):
        types = _types(graph)
        for node in graph.node:
            nodes += 1
            inserted += node.op_type == "Cast" and node.name.startswith(_INSERTED)
            operand = next((types[name] for name in node.input if types.get(name) in _SIZES), None)
            if operand is not None and node.op_type != "Cast":
                operators.setdefault(operand, Counter())[node.op_type] += 1
    return GraphSummary(
        nodes=nodes,
        operators={name: dict(sorted(types.items())) for name, types in sorted(operators.items())},
        inserted_casts=inserted,
    )


def widened(exported: GraphSummary, optimized: GraphSummary) -> dict[str, int]:
    """Returns the operators that a runtime runs in a wider type than the model's.

    Returns:
      By name, how many more there are in float32 and float64 than in the exported graph, if casts
      were inserted; a fused operator has its fused name.
    """
    if not optimized.inserted_casts:
        return {}
    more: Counter[str] = Counter()
    for name, size in _SIZES.items():
        if size > 2:
            more.update(optimized.operators.get(name, {}))
            more.subtract(exported.operators.get(name, {}))
    return {name: count for name, count in sorted(more.items()) if count > 0}


def has_widened_products(exported: GraphSummary, optimized: GraphSummary) -> bool:
    """Returns whether products of a 16-bit model are computed in a wider type.

    Other operators, such as softmax, may be: they do little of the work, and hardware and other
    stacks accumulate them in float32, too. Fusing and folding only reduce the number of products.
    """
    narrow = [name for name, size in _SIZES.items() if size == 2]
    wide = [name for name, size in _SIZES.items() if size > 2]
    before = {name: exported.products(name) for name in _SIZES}
    after = {name: optimized.products(name) for name in _SIZES}
    grew = sum(after[name] for name in wide) > sum(before[name] for name in wide)
    none_left = any(before[name] for name in narrow) and not any(after[name] for name in narrow)
    return grew or none_left


def fingerprint(model: onnx.ModelProto, directory: Path) -> str:
    """Returns the sha256 of a model's computation: operators, attributes, types and weights.

    It leaves out what differs between two runs of one exporter or runtime: source lines, dates,
    names of values and nodes, and the order of independent nodes (ONNX Runtime uses the order of
    its hash tables). A value is identified by the digest of the node that produces it, and a node
    by the digests of its operands, as in a Merkle tree.

    Args:
      model: from `load`.
      directory: directory of the files with its weights.
    """
    graph = model.graph
    values = {"": b"absent"}
    for index, value in enumerate(graph.input):
        values[value.name] = digest_of_parts(
            str(index), value.type.SerializeToString(deterministic=True)
        )
    for weight in graph.initializer:
        values[weight.name] = _digest_of_weight(weight, directory)
    nodes = []
    for node in graph.node:
        attributes = sorted(item.SerializeToString(deterministic=True) for item in node.attribute)
        # A graph inside a node refers to outer values by name.
        operands = [values.get(name, name.encode()) for name in node.input]
        nodes.append(
            digest_of_parts(node.domain, node.op_type, *attributes, b"operands", *operands)
        )
        for index, name in enumerate(node.output):
            values[name] = digest_of_parts(nodes[-1], str(index))
    versions = sorted(f"{item.domain} {item.version}" for item in model.opset_import)
    outputs = [values[value.name] for value in graph.output]
    return digest_of_parts(*versions, b"nodes", *sorted(nodes), b"outputs", *outputs).hex()


def _digest_of_weight(weight: TensorProto, directory: Path) -> bytes:
    bare = TensorProto()
    bare.CopyFrom(weight)
    external = {entry.key: entry.value for entry in weight.external_data}
    for field in ("name", "doc_string", "external_data", "data_location", "metadata_props"):
        bare.ClearField(field)
    digest = hashlib.sha256(bare.SerializeToString(deterministic=True))
    if external:
        with (directory / external["location"]).open("rb") as file:
            file.seek(int(external.get("offset", 0)))
            left = int(external["length"])
            while left and (chunk := file.read(min(left, _CHUNK))):
                digest.update(chunk)
                left -= len(chunk)
    return digest.digest()


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yields a graph and the graphs inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    yield from _graphs(inner)


def _types(graph: onnx.GraphProto) -> dict[str, str]:
    """Returns the element type of each value of a graph that declares one, by name."""
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        types[value.name] = value.type.tensor_type.elem_type
    return {name: TensorProto.DataType.Name(code).lower() for name, code in types.items()}


_MODEL, _WEIGHTS = "optimized.onnx", "optimized.onnx.data"
# Smaller weights stay in the file: most are constants of the graph.
_SMALLEST_EXTERNAL_BYTES = 1024
_EXTERNAL = "session.optimized_model_external_initializers"


@attrs.frozen(kw_only=True)
class OptimizedGraph:
    """ONNX Runtime's optimized version of a graph.

    Attributes:
      exported, optimized: operators of the graphs.
      sha256: identity of the optimized graph with its weights.
      size_bytes: size of the optimized graph, without its weights.
      weights_size_bytes: size of its weights; folding can make it smaller or larger than before.
    """

    exported: GraphSummary
    optimized: GraphSummary
    sha256: str
    size_bytes: int
    weights_size_bytes: int


def examine(path: Path, compiler: str, work_dir: Path) -> OptimizedGraph:
    """Returns the graph that a session on a file runs; opens one on the CPU in a child process.

    Args:
      path: an ONNX file.
      compiler: the compiler, which selects the optimizations.
      work_dir: directory for the optimized graph until it is read.

    Raises:
      RuntimeError: the process failed.
    """
    arguments = {"path": str(path), "compiler": compiler, "directory": str(work_dir)}
    told, _ = child_process.call(
        f"{__name__}:examine_here", arguments, name="the process that writes the optimized graph"
    )
    return msgspec.convert(told, OptimizedGraph)


def examine_here(
    _: child_process.Channel, path: str, compiler: str, directory: str
) -> dict[str, Any]:
    """Writes the optimized graph in this process, and removes it; see `examine`."""
    from comparative_benchmark.onnxruntime import session

    work_dir = Path(directory)
    model, weights = work_dir / _MODEL, work_dir / _WEIGHTS
    chosen = session.options(compiler, threads=1)
    chosen.optimized_model_filepath = str(model)
    for name, value in (
        (f"{_EXTERNAL}_file_name", weights.name),
        (f"{_EXTERNAL}_min_size_in_bytes", _SMALLEST_EXTERNAL_BYTES),
    ):
        chosen.add_session_config_entry(name, str(value))
    try:
        session.open_session(Path(path), "cpu", chosen)
        written = load(model)
        optimized = OptimizedGraph(
            exported=summarize(load(Path(path))),
            optimized=summarize(written),
            sha256=fingerprint(written, work_dir),
            size_bytes=model.stat().st_size,
            weights_size_bytes=weights.stat().st_size if weights.exists() else 0,
        )
    finally:
        for file in (model, weights):
            file.unlink(missing_ok=True)
    return attrs.asdict(optimized)


_PRODUCTS = frozenset({"MatMul", "Gemm"})


def apply_recipe(
    paths: Sequence[Path], recipe: Chosen, phase: PhaseTimer
) -> tuple[list[Path], dict[str, Any]]:
    """Quantises graphs; phase `lower`.

    Returns:
      Files of the quantised graphs, and a summary: `name`, the number of changed `layers` and of
      `linear` ones (products with weights), the operator that they became, and the bytes of all
      weights before and after.

    Raises:
      UnsupportedError: the quantiser has no such recipe.
      RuntimeError: the quantiser failed, or changed nothing.
    """
    arguments = {"paths": list(map(str, paths)), "recipe": recipe.label}
    told, _ = child_process.call(
        f"{__name__}:apply_here", arguments, phase, name="the process that quantises the graph"
    )
    return [Path(path) for path in told["paths"]], told["applied"]


def apply_here(channel: child_process.Channel, paths: list[str], recipe: str) -> dict[str, Any]:
    """Quantises graphs in this process; see `apply_recipe`."""
    chosen = parse(recipe)
    # It logs every node, and recommends a preprocessing step that the exporter has done.
    logging.disable(logging.WARNING)
    try:
        quantise, operator = chosen.configuration_in("onnxruntime")
    except NotImplementedError as error:
        raise UnsupportedError(f"ONNX Runtime cannot apply {recipe}: {error}") from error
    counts = {"layers": 0, "linear": 0, "bytes_before": 0, "bytes_after": 0}
    made = []
    for source in map(Path, paths):
        target = source.with_name(f"{source.stem}.{recipe}.onnx")
        before = load(source)
        with channel.phase("lower"):
            # The quantiser transposes weights without updating their recorded shapes; without
            # records it infers all shapes again.
            bare = source.with_name(f"{source.stem}.bare.onnx")
            del before.graph.value_info[:]
            onnx.save(before, str(bare))
            quantise(str(bare), str(target))
        after = load(target)
        weights = {weight.name for weight in before.graph.initializer}
        counts["linear"] += sum(
            node.op_type in _PRODUCTS and not weights.isdisjoint(node.input)
            for node in before.graph.node
        )
        counts["layers"] += sum(node.op_type == operator for node in after.graph.node)
        for name, path in (("bytes_before", source), ("bytes_after", target)):
            data = path.with_name(f"{path.name}.data")
            counts[name] += path.stat().st_size + (data.stat().st_size if data.exists() else 0)
        made.append(str(target))
    if not counts["layers"]:
        raise NotAppliedError(f"{recipe} changed 0 of {counts['linear']} products with weights")
    return {"paths": made, "applied": {"name": recipe, "weight_class": operator, **counts}}
