"""ONNX's own tests of operators: our truths equal their outputs, and right outputs pass.

The package `onnx` has a graph, inputs and outputs for each operator and variant.
"""

import functools
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.backend.test.case.node import collect_testcases

from comparative_benchmark.analysis.verification.verification import open_array, sum_length, verify
from comparative_benchmark.engine.worker.preparing import FEW_NUMBERS
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.user_models.onnx import in_onnx
from openxla.benchmark.user_models.programs.program_model import NotWidenedError

pytestmark = pytest.mark.frameworks

# They draw random numbers.
RANDOM = ("test_bernoulli", "test_training_dropout")
# The tests divide by a size before it is rounded down; ONNX Runtime and OpenVINO do not.
DISPUTED = (
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
)
EVERY = 20
LOOP = """
<ir_version: 9, opset_import: ["" : 17]>
doubled (float{shape} x) => (float{shape} last, float{stacked} every) {{
  count = Constant <value = int64 {{3}}> ()
  yes = Constant <value = bool {{1}}> ()
  last, every = Loop <
    body = step (int64 i, bool go, float{shape} a) => (bool more, float{shape} b, float{shape} c) {{
      more = Identity (go)
      b = Add (a, a)
      c = Identity (b)
    }}
  > (count, yes, x)
}}
"""


@functools.cache
def node_tests():
    """Returns name, model, inputs and outputs of each test of float32 numbers."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    found = []
    for case in cases:
        if not case.data_sets or case.name.startswith(RANDOM) or case.name in DISPUTED:
            continue
        values = case.data_sets[0]
        if not all(isinstance(v, np.ndarray | np.generic) for part in values for v in part):
            continue  # sequences and optional values
        inputs, outputs = ([np.asarray(value) for value in part] for part in values)
        kinds = {value.dtype.kind for value in (*inputs, *outputs)}
        if any(value.dtype == np.float32 for value in outputs) and not kinds & set("OUS"):
            found.append((case.name, case.model, inputs, outputs))
    return found


def _close(value, expected, *, rtol, atol):
    if value.shape != expected.shape:
        return False
    if expected.dtype.kind in "iub":
        return np.array_equal(value, expected)
    wide = [part.astype(np.float64) for part in (value, expected)]
    return np.allclose(*wide, rtol=rtol, atol=atol, equal_nan=True)


def _all_close(values, expected, *, rtol=1e-3, atol=1e-5):
    return len(values) == len(expected) and all(
        _close(np.asarray(one), other, rtol=rtol, atol=atol)
        for one, other in zip(values, expected, strict=True)
    )


def _by_runtime(model, inputs):
    """Returns the outputs of ONNX Runtime; None if it lacks the operator."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [value.name for value in session.get_inputs()]
        return session.run(None, dict(zip(names, inputs, strict=True)))
    except Exception:  # it has many kinds of errors
        return None


def _verdict(folder, outputs, truth, model, inputs):
    try:
        reference = in_onnx.run_graph(model, inputs)
    except NotImplementedError:  # without an evaluator, the runtime itself is the reference
        reference = outputs
    kinds = {"outputs": outputs, "truth": truth, "reference": reference}
    paths = [
        [folder / kind / file["file"] for file in array_files.save_all(folder / kind, "o", values)]
        for kind, values in kinds.items()
    ]
    shapes = [[open_array(path).shape for path in paths[1]], [value.shape for value in inputs]]
    return verify(*paths, longest_sum=sum_length(*reversed(shapes)))


@pytest.mark.parametrize("every", [EVERY, pytest.param(1, marks=pytest.mark.nightly)])
def test_truths_equal_the_outputs_and_right_outputs_pass(every, tmp_path, capsys):
    narrow, wrong, accused, passed = [], [], [], 0
    chosen = node_tests()[::every]
    for place, (name, model, inputs, outputs) in enumerate(chosen):
        try:
            truth, _ = in_onnx.run_in_float64(model, inputs)
        except NotWidenedError:
            narrow.append(name)
            continue
        if not _all_close(truth, outputs):
            wrong.append(name)
            continue
        computed = _by_runtime(model, inputs)
        # Few numbers need neighbours, and some of ONNX Runtime's outputs are wrong.
        if computed is None or min(value.size for value in outputs) <= FEW_NUMBERS:
            continue
        if _all_close(computed, outputs, rtol=1e-4, atol=1e-6):
            verdict = _verdict(tmp_path / str(place), computed, truth, model, inputs)
            passed += verdict.passed
            if not verdict.passed and not verdict.undecided:
                accused.append(f"{name}: {verdict.reason}")
    with capsys.disabled():
        print(
            f"\nONNX's tests of operators: {len(chosen)}, {len(narrow)} without a float64 truth; "
            f"{passed} outputs of ONNX Runtime judged right, {len(accused)} accused"
        )
    assert not wrong
    assert not accused
    assert len(narrow) < 0.1 * len(chosen)
    assert passed > 0.3 * len(chosen)


@pytest.mark.parametrize("shape", [[], [4], [2, 3]])
def test_scan_outputs_of_a_loop_are_stacked(shape):
    """ONNX's evaluator appends the rows of each iteration instead."""
    model = onnx.parser.parse_model(LOOP.format(shape=shape or "", stacked=[3, *shape]))
    x = np.ones(shape, np.float32)
    (last, every), routes = in_onnx.run_in_float64(model, [x])
    np.testing.assert_array_equal(last, 8 * x)
    np.testing.assert_array_equal(every, np.stack([2 * x, 4 * x, 8 * x]))
    check = routes.check()
    assert "ONNX Runtime" in check.routes
    assert (check.in_doubt, check.outvoted, check.unchecked) == ((), (), ())
