"""What every backend's own profiler tells is read as operators, and the products among them."""

import pytest
from agreement_support import need
from tests_support import run_cbs

from comparative_benchmark.results import kept_profiles
from comparative_benchmark.results.codec import read_document
from comparative_benchmark.results.explanations import explain

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
# Its interface tells operations, and no times.
WITHOUT_TIMES = "tflite:native"


def test_products_are_found_in_what_each_profiler_says(tmp_path, environment):
    for package in BACKENDS.values():
        need(package)
    measured = run_cbs(
        *("--backend", ",".join(BACKENDS), "--profile", "-w", "1", "-iter", "2"),
        *("-name", "models/BERT_TINY_FP32_(PT|JAX|TF)_32XI32_BATCH1/.+DEFAULT"),
        directory=tmp_path,
        environment=environment,
    )
    assert measured.code == 0, measured.out + measured.err
    results = read_document(measured.output).benchmarks
    assert {result.definition.competitor for result in results} == set(BACKENDS)
    for result in results:
        name = result.definition.competitor
        profile = kept_profiles.load(tmp_path, result)
        assert profile is not None, name
        assert profile.operators, name
        rows = {row.kind: row for row in explain((result, profile), (result, profile), None).rows}
        assert "matrix products" in rows, (name, [o.name for o in profile.operators])
        timed = [operator for operator in profile.operators if operator.us]
        assert bool(timed) == (name != WITHOUT_TIMES), name
