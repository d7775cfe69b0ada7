"""Every backend's own profile is read as operators, and the products among them."""

import pytest
from agreement_support import need

from comparative_benchmark.results import published
from comparative_benchmark.results.comparing.explanations import explain
from comparative_benchmark.results.results_file import read_document

pytestmark = pytest.mark.frameworks

BACKENDS = {
    "pt_inductor:eager": "torch",
    "jax_xla:xla": "jax",
    "xla_hlo:stablehlo": "jax",
    "tf_xla:xla": "tensorflow",
    "iree:llvm-cpu": "iree.compiler",
    "onnxruntime:default": "onnxruntime",
    "openvino:latency": "openvino",
    "tflite:native": "ai_edge_litert",
}
# These start slowly, and JAX uses XLA's profiler.
SLOW = ("xla_hlo:stablehlo", "tf_xla:xla")
# Its interface reports operations, but no times.
WITHOUT_TIMES = "tflite:native"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly if name in SLOW else ()) for name in BACKENDS],
)
def test_products_are_found_in_what_each_profiler_says(column, name):
    need(BACKENDS[name])
    measured = column(name.partition(":")[0])
    results = [
        result
        for result in read_document(measured.output).benchmarks
        if result.definition.competitor == name and "BERT" in result.definition.model
    ]
    assert results
    for result in results:
        profile = published.load(measured.output.parent, result)
        assert profile is not None, name
        assert profile.operators, name
        rows = {row.kind: row for row in explain((result, profile), (result, profile), None).rows}
        assert "matrix products" in rows, (name, [o.name for o in profile.operators])
        timed = [operator for operator in profile.operators if operator.us]
        assert bool(timed) == (name != WITHOUT_TIMES), name
