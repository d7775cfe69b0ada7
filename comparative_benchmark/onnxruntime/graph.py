"""The operators of an ONNX graph by type, and its identity.

If ONNX Runtime has no kernel for a node's type, it silently runs the node in float32, between casts
that it inserts (`InsertCastTransformer`). So the graph that it runs is compared with the exported
one. Weights are read only for the identity.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import onnx
from onnx import TensorProto

from comparative_benchmark.backends.published_programs import of_parts

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
        found = self.operators.get(element_type, {})
        return sum(count for name, count in found.items() if name in PRODUCTS)


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
        operators={name: dict(sorted(found.items())) for name, found in sorted(operators.items())},
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
        values[value.name] = of_parts(str(index), value.type.SerializeToString(deterministic=True))
    for weight in graph.initializer:
        values[weight.name] = _digest_of_weight(weight, directory)
    nodes = []
    for node in graph.node:
        attributes = sorted(item.SerializeToString(deterministic=True) for item in node.attribute)
        # A graph inside a node refers to outer values by name.
        operands = [values.get(name, name.encode()) for name in node.input]
        nodes.append(of_parts(node.domain, node.op_type, *attributes, b"operands", *operands))
        for index, name in enumerate(node.output):
            values[name] = of_parts(nodes[-1], str(index))
    versions = sorted(f"{item.domain} {item.version}" for item in model.opset_import)
    outputs = [values[value.name] for value in graph.output]
    return of_parts(*versions, b"nodes", *sorted(nodes), b"outputs", *outputs).hex()


def _digest_of_weight(weight: TensorProto, directory: Path) -> bytes:
    bare = TensorProto()
    bare.CopyFrom(weight)
    external = {entry.key: entry.value for entry in weight.external_data}
    for field in ("name", "doc_string", "external_data", "data_location", "metadata_props"):
        bare.ClearField(field)
    digest = hashlib.sha256(bare.SerializeToString(deterministic=True))
    _add_content(digest, external, directory)
    return digest.digest()


def _add_content(digest: Any, external: Mapping[str, str], directory: Path) -> None:
    """Adds the bytes of a weight that is in a separate file."""
    if not external:
        return
    with (directory / external["location"]).open("rb") as file:
        file.seek(int(external.get("offset", 0)))
        left = int(external["length"])
        while left and (chunk := file.read(min(left, _CHUNK))):
            digest.update(chunk)
            left -= len(chunk)


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
