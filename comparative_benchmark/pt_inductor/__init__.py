"""PyTorch: eager, or compiled by Inductor."""

from comparative_benchmark.backends.api import BackendInfo, CompilerInfo
from comparative_benchmark.backends.missing_packages import setup_script
from openxla.benchmark.def_types import ModelFrameworkType
from openxla.benchmark.installation import install_command

BACKEND = BackendInfo(
    name="pt_inductor",
    implementation="comparative_benchmark.pt_inductor.backend:PtInductor",
    level="framework_level",
    modules={ModelFrameworkType.PYTORCH: ("torch",)},
    recipe_modules=("torchao",),
    install=install_command("pt-inductor"),
    setup_script=setup_script("pt_inductor"),
    compilers=(
        CompilerInfo(
            name="eager", description="op by op, no compiler", takes_recipes=True, trains=True
        ),
        CompilerInfo(
            name="inductor",
            description="torch.compile, with its default backend",
            options=("max-autotune", "freezing", "cuda-graphs"),
            autotunes=("max-autotune",),
            takes_recipes=True,
            trains=True,
        ),
        CompilerInfo(
            name="aot-inductor",
            description="torch.export and AOTInductor, as a package that runs without Python",
            default=False,  # takes twice as long to compile as torch.compile
            level="compiler_level",
        ),
    ),
    reference="comparative_benchmark.pt_inductor.reference:compute",
    environment={
        "OMP_NUM_THREADS": "{threads}",
        "MKL_NUM_THREADS": "{threads}",
        "TORCHINDUCTOR_CACHE_DIR": "{cache_dir}/inductor",
        "TRITON_CACHE_DIR": "{cache_dir}/triton",
    },
    profiling={"TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1"},
    packages={"torch": "torch", "transformers": "transformers", "torchao": "torchao"},
    reproducer="comparative_benchmark.pt_inductor.exports:export_reproducer",
    extras=("pt-inductor",),
)
