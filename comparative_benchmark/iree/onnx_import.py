"""Imports an ONNX file by IREE's importer, with its weights as parameters of an archive."""

from pathlib import Path
from typing import Any

import onnx
from iree.compiler import ir
from iree.compiler.extras import onnx_importer
from iree.compiler.tools.import_onnx import importer_externalization_overrides as external
from onnx import numpy_helper

from comparative_benchmark.backends.frameworks import torch_export
from comparative_benchmark.iree.conventions import ENTRY, PARAMETER_SCOPE
from comparative_benchmark.iree.program import ImportedProgram, bytecode

# Of older opsets, torch-mlir lacks some operators that it knows in their newer form.
_OPSET = 17
# Smaller constants are sizes and axes, which the compiler must see.
_LEAST_ELEMENTS = 100


def from_onnx(path: Path) -> ImportedProgram:
    """Returns the program of a file with fixed shapes; its weights are not copied.

    Raises:
      UnsupportedError: IREE's importer does not know an operator.
    """
    with torch_export.refusing("IREE's ONNX importer"), ir.Context() as context:
        model = _inferred(path)
        info = onnx_importer.ModelInfo(model)
        module: Any = info.create_module(context=context).operation
        weights = external.ParamData(
            param_bit_threshold=None,
            num_elements_threshold=_LEAST_ELEMENTS,
            params_scope=PARAMETER_SCOPE,
            data_dir=str(path.parent),
            param_path="",
            input_index_threshold=None,
        )
        importer = external.IREENodeImporter.define_function(info.main_graph, module, weights)
        importer.import_all()
        initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        return ImportedProgram(
            mlir=bytecode(module),
            input_type="onnx",
            parameters={
                symbol: numpy_helper.to_array(initializers[name], base_dir=str(path.parent))
                for name, symbol in importer.globals
            },
        )


def _inferred(path: Path) -> onnx.ModelProto:
    """Returns the file with the types of all values, which the importer needs."""
    model = onnx.load(str(path), load_external_data=False)
    has_external = any(tensor.external_data for tensor in model.graph.initializer)
    version = next((item.version for item in model.opset_import if not item.domain), _OPSET)
    if version < _OPSET and not has_external:
        model = onnx.version_converter.convert_version(model, _OPSET)
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    model.graph.name = ENTRY
    return model
