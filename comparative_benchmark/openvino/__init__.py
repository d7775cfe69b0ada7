"""OpenVINO: PyTorch, TensorFlow, ONNX and TFLite models through its front ends."""

from comparative_benchmark.backends.api import BackendInfo, CompilerInfo
from comparative_benchmark.backends.missing_packages import setup_script
from openxla.benchmark.def_types import ModelFrameworkType
from openxla.benchmark.installation import install_command

# Computes operations in float32 if the CPU has no kernels for them in the model's own type.
WIDENED = "widened"
# Lets the plug-in choose the computation type, which is OpenVINO's default.
DEFAULT_PRECISION = "default-precision"

CACHE_DIR_VARIABLE = "CBS_OPENVINO_CACHE_DIR"

BACKEND = BackendInfo(
    name="openvino",
    implementation="comparative_benchmark.openvino.backend:OpenVino",
    level="compiler_level",
    modules={
        ModelFrameworkType.PYTORCH: ("openvino", "torch"),
        ModelFrameworkType.TF_V2: ("openvino", "tensorflow", "keras"),
        ModelFrameworkType.ONNX: ("openvino", "onnx"),
        ModelFrameworkType.TFLITE: ("openvino", "ai_edge_litert"),
    },
    files_only=(ModelFrameworkType.TFLITE,),
    reference="comparative_benchmark.backends.exported_programs:compute",
    judges=(ModelFrameworkType.ONNX,),
    recipe_modules=("nncf",),
    install=install_command("all"),
    setup_script=setup_script("openvino"),
    compilers=(
        CompilerInfo(
            name="latency",
            description="one stream, in the model's own type",
            options=(DEFAULT_PRECISION, WIDENED),
            accelerator="cpu",
            takes_recipes=True,
        ),
    ),
    environment={
        # For the frameworks, which only export here.
        "OMP_NUM_THREADS": "{threads}",
        "CUDA_VISIBLE_DEVICES": "",
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        CACHE_DIR_VARIABLE: "{cache_dir}/openvino",
    },
    packages={"openvino": "openvino"},
    reproducer="comparative_benchmark.openvino.front_ends:export_reproducer",
    extras=("openvino", "pt-inductor"),
)
