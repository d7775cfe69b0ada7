"""The processes that measure the ceilings of a GPU, rehearsed on the CPU with real libraries."""

import json
import subprocess
import sys

import pytest

from comparative_benchmark.analysis.roofline import ceilings
from comparative_benchmark.analysis.roofline.ceilings import Budget

# A rehearsal: `tests/unit/analysis/test_gpu_ceilings.py` has the arithmetic.
pytestmark = [pytest.mark.frameworks, pytest.mark.alone, pytest.mark.nightly]

SMALL = ("--device", "cpu", "--sizes", "64", "128", "--buffer-bytes", "4000000")


def test_every_rate_is_measured():
    said = []
    found = ceilings.measure_gpu("CPU", said.append, Budget(), child_options=SMALL)
    assert found.skipped == ()
    rates = {(gemm.library, gemm.data_type): gemm for gemm in found.gemms}
    assert list(rates) == [
        (library, what)
        for library, measured in ceilings.MEASURED.items()
        for what in measured
        if what != ceilings.COPY
    ]
    assert all(gemm.size in (64, 128) and gemm.version for gemm in found.gemms)
    # A rate that no CPU has would be one of calls that were not waited for.
    assert all(1e-3 < gemm.gflops < 1e5 for gemm in found.gemms)
    (copied,) = found.copies
    assert (copied.library, copied.buffer_bytes) == ("torch", 4_000_000)
    assert 0.01 < copied.gb_per_s < 5e3
    assert found.gpu == "cpu"
    assert len(said) == len(found.gemms) + 1


# A separate process for each framework: torch and JAX set global state.
SCRIPT = """
import json, sys
from comparative_benchmark.analysis.roofline import _gpu_rates
name = sys.argv[1]
library, found = _gpu_rates.open_library(name, "cpu"), {}
for data_type in sys.argv[2:]:
    product = library.product(data_type, 128)
    left, right = (library.to_host(matrix) for matrix in (product.left, product.right))
    found[data_type] = {
        "error": _gpu_rates.relative_error(library, product),
        "values": len(set(left.ravel()) | set(right.ravel())),
        "difference": abs(left - right).max(),
    }
copy = library.copy(4096)
result, again = copy(), copy()
found["copied"] = int((library.to_host(result) != 0).sum())
if name == "jax":  # the source is in the closure
    sources = [cell.cell_contents for cell in copy.__closure__]
    (source,) = [one for one in sources if hasattr(one, "unsafe_buffer_pointer")]
    found["moved"] = result.unsafe_buffer_pointer() != source.unsafe_buffer_pointer()
print(json.dumps(found))
"""
# Half of the last bit of a result, and what rounding adds within a sum.
LARGEST_ERRORS = {"fp32": 1e-6, "tf32": 1e-6, "bf16": 4e-3, "fp16": 5e-4, "fp8": 4e-3}
EXACT = "int8"


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_products_are_right_and_of_random_matrices(library):
    types = [what for what in ceilings.MEASURED[library] if what != ceilings.COPY]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, library, *types], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("copied") == 1024
    assert found.pop("moved", True), "XLA handed the argument on and copied nothing"
    assert list(found) == types
    for data_type, seen in found.items():
        if data_type == EXACT:
            assert seen["error"] == 0
        else:
            assert 0 < seen["error"] < LARGEST_ERRORS[data_type], data_type
        assert seen["values"] > 50, f"{data_type}: constants"
        assert seen["difference"] > 0.1, f"{data_type}: the same matrix twice"
