"""LiteRT: TFLite files, from users or converted from JAX and TensorFlow models."""

from comparative_benchmark.backends.api import BackendInfo, CompilerInfo
from comparative_benchmark.backends.missing_packages import setup_script
from openxla.benchmark.def_types import ModelFrameworkType
from openxla.benchmark.installation import install_command

_OPTIONS = ("no-xnnpack",)


def _converting(name: str, precision: str | None, description: str) -> CompilerInfo:
    # Not a default, so that `tflite` without a compiler is comparable with other backends.
    return CompilerInfo(
        name=name,
        description=description,
        options=_OPTIONS,
        default=False,
        accelerator="cpu",
        precision=precision,
    )


BACKEND = BackendInfo(
    name="tflite",
    implementation="comparative_benchmark.tflite.backend:TfLite",
    level="compiler_level",
    modules={
        ModelFrameworkType.TFLITE: ("ai_edge_litert", "tensorflow", "keras"),
        ModelFrameworkType.JAX: ("ai_edge_litert", "tensorflow", "jax", "flax"),
        ModelFrameworkType.TF_V2: ("ai_edge_litert", "tensorflow", "keras"),
    },
    install=install_command("all"),
    setup_script=setup_script("tflite"),
    compilers=(
        CompilerInfo(
            name="native",
            description="fp32 for models, the file's own precision for TFLite files",
            options=_OPTIONS,
            accelerator="cpu",
        ),
        _converting("fp32", None, "fp32 weights and computation"),
        _converting("fp16", "fp16-weights", "fp16 weights, fp32 computation"),
        _converting(
            "dynamic-range", "dynamic-range", "int8 weights, activations quantised at run time"
        ),
        _converting(
            "int8", "int8", "int8 weights, calibrated int8 activations, fp32 inputs and outputs"
        ),
    ),
    reference="comparative_benchmark.tflite.backend:compute",
    # For models written in JAX and TensorFlow, these frameworks compute truth and reference.
    judges=(ModelFrameworkType.TFLITE,),
    starts_from={
        "fp32": (("tflite_fp32",),),
        "fp16": (("tflite_fp16",),),
        "dynamic-range": (("tflite_dynamic_range_quant",),),
        "int8": (("tflite_int8",),),
    },
    environment={
        "JAX_PLATFORMS": "cpu",  # JAX and TensorFlow only export here
        "CUDA_VISIBLE_DEVICES": "-1",
        "KERAS_BACKEND": "tensorflow",
        "OMP_NUM_THREADS": "{threads}",
        "TF_CPP_MIN_LOG_LEVEL": "1",
    },
    packages={"ai_edge_litert": "ai-edge-litert"},
    reproducer="comparative_benchmark.tflite.backend:export_reproducer",
    extras=("tflite", "tf-xla", "jax-xla"),
)
