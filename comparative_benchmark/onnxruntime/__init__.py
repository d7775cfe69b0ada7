"""ONNX Runtime: ONNX files, from users or exported from PyTorch."""

from comparative_benchmark.backends.api import BackendInfo, CompilerInfo
from comparative_benchmark.backends.missing_packages import setup_script
from openxla.benchmark.def_types import ModelFrameworkType
from openxla.benchmark.installation import install_command

# Runs a 16-bit model in float32 if the CPU has no kernels for its type.
WIDENED = "widened"


def _compiler(name: str, description: str, *, default: bool = False) -> CompilerInfo:
    return CompilerInfo(
        name=name,
        description=description,
        options=(WIDENED,),
        default=default,
        accelerator="cpu",
        takes_recipes=True,
    )


BACKEND = BackendInfo(
    name="onnxruntime",
    implementation="comparative_benchmark.onnxruntime.backend:OnnxRuntime",
    level="compiler_level",
    modules={
        ModelFrameworkType.PYTORCH: ("onnxruntime", "onnx", "onnxscript", "torch"),
        ModelFrameworkType.ONNX: ("onnxruntime", "onnx"),
    },
    reference="comparative_benchmark.backends.exported_programs:compute",
    judges=(ModelFrameworkType.ONNX,),
    install=install_command("all"),
    setup_script=setup_script("onnxruntime"),
    compilers=(
        _compiler("default", "all graph optimisations", default=True),
        _compiler("extended", "all graph optimisations except layout changes"),
        _compiler("basic", "constant folding and removal of redundant nodes"),
        _compiler("disabled", "no graph optimisations"),
        CompilerInfo(name="cuda", description="for NVIDIA GPUs", accelerator="gpu"),
    ),
    starts_from=dict.fromkeys(("default", "extended", "basic", "disabled"), (("onnx",),)),
    environment={
        "OMP_NUM_THREADS": "{threads}"  # for PyTorch, which only exports here
    },
    packages={"onnx": "onnx", "onnxruntime": "onnxruntime"},
    reproducer="comparative_benchmark.onnxruntime.backend:export_reproducer",
    extras=("onnxruntime", "pt-inductor"),
)
