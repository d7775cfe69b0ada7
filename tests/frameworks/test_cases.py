"""Small programs that were once misjudged: each has its right outcome on each stack."""

from pathlib import Path

import pytest
from agreement_support import need
from tests_support import run_cbs

pytestmark = pytest.mark.frameworks

FOLDER = Path(__file__).parents[1] / "data" / "cases"
PYTORCH = "pt_inductor:eager,onnxruntime,openvino"
ONNX = "onnxruntime,openvino,iree:llvm-cpu"
JUDGED = {"ok", "agreed"}
# Neither right nor wrong: an output that cannot be judged, or a stack that lacks an operator.
LACKING = {"unsupported"}
TRAIN = ("-t", "train")
NAMED = (
    "--batch",
    "3",
    "--input",
    "attention_mask=f32[batch,5]",
    "--input",
    "input_ids=i64[batch,5]<9",
)
# File, further arguments, backends, and statuses that are right; by backend if they differ.
CASES = [
    ("recompiles.py", (), "pt_inductor:inductor", {"unsupported"}),
    ("slow_clock.py", (), "pt_inductor:eager", {"failed"}),
    ("masked.py", (), "test_spoiled:zeros", {"wrong_output"}),
    ("mean.py", (), "test_spoiled:kept", {"wrong_output", "not ranked"}),
    ("a1_bn_opset11.onnx", (), ONNX, {"ok"}),
    (
        "a2_softmax11_axis1.onnx",
        (),
        ONNX,
        {"onnxruntime": {"ok"}, "iree": {"ok"}, "openvino": {"wrong_output"}},
    ),
    ("a5_resize_align_corners.onnx", (), "onnxruntime,openvino", {"ok", "truth in doubt"}),
    ("a7_grid_sample.onnx", (), "onnxruntime,openvino", JUDGED),
    ("b1_tree_one_number.onnx", (), "onnxruntime", {"ok"}),
    ("b1_tree_one_number.onnx", ("--batch", "8"), "onnxruntime", {"ok"}),
    ("b3_one_number.py", (), PYTORCH, JUDGED),
    ("b4_empty_output.py", (), PYTORCH, JUDGED | LACKING),
    ("b5_nan_in_truth.py", (), PYTORCH, JUDGED | LACKING),
    ("b7_integer_minimum.py", (), "pt_inductor:eager", {"ok"}),
    ("c1_complex_output.py", (), PYTORCH, JUDGED | LACKING),
    ("d0_lstm_first_state.py", (), PYTORCH, JUDGED),
    ("d1_float_call.py", (), PYTORCH, {"ok"}),
    ("e1_fitted_in_factory.py", (), "pt_inductor:eager,onnxruntime", {"ok"}),
    ("e2_forces.py", (), "pt_inductor:eager,onnxruntime", JUDGED | LACKING),
    ("h1_keras_to_tflite.py", (), "tflite:native,tf_xla:graph", {"ok"}),
    ("h1_keras_to_tflite.py", (), "tf_xla:graph,tflite:native", {"ok"}),
    ("f1_keyword_inputs.py", (), PYTORCH, {"ok"}),
    ("f1_keyword_inputs.py", NAMED, "pt_inductor:eager,onnxruntime", {"ok"}),
    ("nested.py", (), "pt_inductor:eager,onnxruntime,openvino,iree:llvm-cpu", {"ok"}),
    ("nested.py", (), "pt_inductor:inductor", {"ok"}),
    ("nested_jax.py", (), "jax_xla,iree:llvm-cpu", {"ok"}),
    ("dictionary_keras.py", (), "tf_xla:graph,tflite,openvino", {"ok"}),
    ("two_inputs_keras.py", (), "tf_xla:graph,tflite", {"ok"}),
    ("cycle.py", (), "pt_inductor:eager", {"a B that contains itself"}),
    ("string_input.py", (), "pt_inductor:eager", {"mode is a string"}),
    ("train_torch.py", TRAIN, "pt_inductor:inductor", {"ok"}),
    ("train_nnx.py", TRAIN, "jax_xla", {"ok"}),
    ("train_keras.py", TRAIN, "tf_xla:xla", {"ok"}),
    ("train_torch.py", TRAIN, "onnxruntime", LACKING),
]
# The default tier has some of each class; its other tests have more.
SAMPLE = {
    "masked.py",
    "a2_softmax11_axis1.onnx",
    "d1_float_call.py",
    "train_nnx.py",
    "nested_jax.py",
}
# Parts of reasons, which are more specific than a status.
TOLD = ("truth in doubt", "a B that contains itself", "mode is a string")
# Eager PyTorch does not judge other backends: its own float64 run must confirm it.
RIGHT_IN_EAGER = ("b3", "b4", "b5", "b7", "c1", "d0", "e1", "e2")


def outcome(record):
    """Returns a status, or something more specific: `agreed`, `not ranked`, words of a reason."""
    [metrics] = record["metrics"].values()
    status = record["status"]
    for words in TOLD:
        if words in (record.get("reason") or ""):
            return words
    if status == "ok" and "not_ranked" in metrics:
        return "not ranked"
    return "agreed" if status == "ok" and "without_float64" in metrics else status


@pytest.mark.parametrize(
    ("file", "arguments", "backends", "right"),
    [
        pytest.param(
            *case,
            id="-".join([case[0].partition(".")[0], *case[1], case[2].partition(",")[0]]),
            marks=() if case[0] in SAMPLE else pytest.mark.nightly,
        )
        for case in CASES
    ],
)
def test_a_case_has_its_outcome(tmp_path, environment, file, arguments, backends, right):
    for package in ("torch", "onnxruntime", "openvino", "tensorflow"):
        need(package)
    run = run_cbs(
        *(str(FOLDER / file), *arguments, "--backend", backends, "-w", "1", "-iter", "3"),
        directory=tmp_path,
        environment=environment,
    )
    records = {r["definition"]["backend"]: r for r in run.document["benchmarks"]}
    assert len(records) == backends.count(",") + 1, run.err
    for name, record in records.items():
        due = right[name] if isinstance(right, dict) else right
        assert outcome(record) in due, (name, record["status"], record["reason"])
        if name == "pt_inductor" and file.startswith(RIGHT_IN_EAGER):
            assert record["status"] == "ok", record["reason"]
    statuses = {record["status"] for record in records.values()}
    if "ok" in statuses and not statuses & {"wrong_output", "failed"}:
        assert run.code == 0
