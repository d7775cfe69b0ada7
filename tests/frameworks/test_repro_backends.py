"""Reproducers of the other backends: each is made of a result, and run once by `--check`."""

import pytest
from agreement_support import need
from repro_support import make, results_file

pytestmark = pytest.mark.frameworks

DEFAULT = "inputs/INPUT_DATA_MODEL_DEFAULT"
BERT_JAX = f"models/BERT_TINY_FP32_JAX_32XI32_BATCH1/{DEFAULT}"
BERT_PT = f"models/BERT_TINY_FP32_PT_32XI32_BATCH1/{DEFAULT}"
BERT_TF = f"models/BERT_TINY_FP32_TF_32XI32_BATCH1/{DEFAULT}"
GPT2_PT = f"models/GPT2_TINY_GREEDY_FP32_PT_1X16XI32_8XI32/{DEFAULT}"
VIT_FP16 = f"models/VIT_TINY_FP16_JAX_3X32X32XF16_BATCH1/{DEFAULT}"
GPT2_JAX = f"models/GPT2_TINY_GREEDY_FP32_JAX_1X16XI32_8XI32/{DEFAULT}"
RESNET_BF16 = f"models/RESNET_TINY_BF16_JAX_3X32X32XBF16_BATCH1/{DEFAULT}"

# Case, competitor, required modules, and files that must exist.
MADE = [
    (BERT_JAX, "jax_xla:xla", ("jax",), ["program.jax_export", "program.mlirbc", "weights"]),
    (GPT2_JAX, "jax_xla:xla", ("jax",), ["program.jax_export"]),
    (RESNET_BF16, "xla_hlo:hlo-proto", ("jax",), ["program.hlo.pb", "program.hlo.txt"]),
    (RESNET_BF16, "iree:llvm-cpu", ("jax", "iree"), ["weights.irpa", "inputs/input_0.bin"]),
    (BERT_PT, "iree:llvm-cpu-data-tiling", ("torch", "iree"), ["program.mlirbc"]),
    (BERT_PT, "pt_inductor:inductor", ("torch",), ["model.pt2", "model.txt"]),
    (GPT2_PT, "pt_inductor:eager", ("torch",), ["prefill.pt2", "decode.pt2"]),
    (BERT_PT, "onnxruntime:default", ("torch", "onnxruntime"), ["model.onnx", "model.onnx.data"]),
    (GPT2_PT, "onnxruntime:default", ("torch", "onnxruntime"), ["prefill.onnx", "decode.onnx"]),
    (BERT_PT, "openvino:latency", ("torch", "openvino"), ["model.xml", "model.bin"]),
    (GPT2_PT, "openvino:latency", ("torch", "openvino"), ["prefill.xml", "decode.bin"]),
    (BERT_TF, "tf_xla:xla", ("tensorflow",), ["saved_model"]),
    (BERT_TF, "tflite:native", ("tensorflow", "ai_edge_litert"), ["model.tflite"]),
]
# One form of programs in the default tier; `test_repro_compilers` has XLA's and IREE's.
FORMS = ("onnxruntime:default",)


@pytest.mark.parametrize(
    ("name", "competitor", "packages", "files"),
    [
        pytest.param(
            *made,
            id=f"{made[0].split('_')[0][7:]}-{made[1]}",
            marks=() if made[1] in FORMS and made[0] != GPT2_PT else pytest.mark.nightly,
        )
        for made in MADE
    ],
)
def test_a_reproducer_is_right_where_it_was_made(
    tmp_path, environment, name, competitor, packages, files
):
    for package in packages:
        need(package)
    results = results_file(tmp_path / "r.json", name, competitor)
    done = make(results, tmp_path / "made", "--check", environment=environment)
    assert done.returncode == 0, done.stderr
    readme = (tmp_path / "made" / "README.md").read_text()
    assert "\nPASS\nexit code 0\n" in readme, readme
    for file in files:
        assert (tmp_path / "made" / file).exists()
        assert f"`{file.partition('/')[0]}`" in readme
    requirements = (tmp_path / "made" / "requirements.txt").read_text().splitlines()
    assert all("==" in line for line in requirements)
    # Files that `run.py` builds are not part of it.
    assert not list((tmp_path / "made").rglob("__pycache__"))
    assert not (tmp_path / "made" / "model.vmfb").exists()


def test_a_model_that_can_not_be_exported_leaves_traceback_and_script(tmp_path, environment):
    """TFLite would compute a 16-bit model in float32, which was not requested."""
    need("tensorflow")
    need("ai_edge_litert")
    need("jax")
    results = results_file(
        *(tmp_path / "r.json", VIT_FP16, "tflite:fp32"),
        status="failed",
        phase="compile",
        reason="recorded",
    )
    done = make(results, tmp_path / "made", "--check", environment=environment)
    assert done.returncode == 0, done.stderr
    assert "no program exported: unsupported" in done.stderr
    assert "which TFLite computes in fp32" in (tmp_path / "made" / "traceback.txt").read_text()
    assert not (tmp_path / "made" / "run.py").exists()
