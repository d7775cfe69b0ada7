"""IREE: JAX and TensorFlow through StableHLO, PyTorch and ONNX through torch-mlir."""

from comparative_benchmark.backends.api import BackendInfo, CompilerInfo
from comparative_benchmark.backends.missing_packages import setup_script
from openxla.benchmark.def_types import ModelFrameworkType
from openxla.benchmark.installation import install_command

_IREE = ("iree.compiler", "iree.runtime")
_ON_CPU = ("llvm-cpu", "llvm-cpu-data-tiling")

BACKEND = BackendInfo(
    name="iree",
    implementation="comparative_benchmark.iree.backend:Iree",
    level="compiler_level",
    modules={
        ModelFrameworkType.JAX: (*_IREE, "jax", "flax"),
        ModelFrameworkType.PYTORCH: (*_IREE, "torch"),
        ModelFrameworkType.TF_V2: (*_IREE, "tensorflow", "keras"),
        ModelFrameworkType.ONNX: (*_IREE, "onnx"),
        ModelFrameworkType.STABLEHLO: (*_IREE, "jax"),
    },
    install=install_command("all"),
    setup_script=setup_script("iree"),
    compilers=(
        CompilerInfo(
            name="llvm-cpu", description="for this CPU, without data tiling", accelerator="cpu"
        ),
        CompilerInfo(
            name="llvm-cpu-data-tiling",
            description="for this CPU, with data tiling",
            variant=True,
            accelerator="cpu",
        ),
        CompilerInfo(name="cuda", description="for NVIDIA GPUs", accelerator="gpu"),
    ),
    starts_from={
        **dict.fromkeys(_ON_CPU, (("torch_mlir", "irpa"), ("stablehlo_mlir", "xla_weights"))),
        "cuda": (("vmfb_cuda", "irpa"),),
    },
    program_modules={**dict.fromkeys(_ON_CPU, _IREE), "cuda": ("iree.runtime",)},
    reference="comparative_benchmark.backends.exported_programs:compute",
    judges=(ModelFrameworkType.ONNX, ModelFrameworkType.STABLEHLO),
    environment={
        "JAX_PLATFORMS": "cpu",  # JAX only exports here
        "KERAS_BACKEND": "tensorflow",
        "OMP_NUM_THREADS": "{threads}",
    },
    packages={"iree.compiler": "iree-base-compiler", "iree.runtime": "iree-base-runtime"},
    reproducer="comparative_benchmark.iree.compilation:export_reproducer",
    extras=("iree", "pt-inductor", "jax-xla"),
)
