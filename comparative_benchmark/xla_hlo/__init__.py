"""XLA programs through jaxlib's PJRT client, without a framework."""

from comparative_benchmark.backends.api import BackendInfo, CompilerInfo
from comparative_benchmark.backends.missing_packages import setup_script
from openxla.benchmark.def_types import ModelFrameworkType
from openxla.benchmark.installation import install_command

# Directory where later processes find compiled programs.
CACHE_VARIABLE = "CBS_XLA_HLO_CACHE_DIR"

BACKEND = BackendInfo(
    name="xla_hlo",
    implementation="comparative_benchmark.xla_hlo.backend:XlaHlo",
    level="compiler_level",
    modules={
        ModelFrameworkType.JAX: ("jaxlib", "jax", "flax"),
        ModelFrameworkType.TF_V2: ("jaxlib", "tensorflow", "keras"),
        ModelFrameworkType.STABLEHLO: ("jaxlib", "jax"),
    },
    reference="comparative_benchmark.backends.exported_programs:compute",
    judges=(ModelFrameworkType.STABLEHLO,),
    install=install_command("all"),
    setup_script=setup_script("xla_hlo"),
    compilers=(
        CompilerInfo(name="stablehlo", description="from a portable StableHLO artifact"),
        CompilerInfo(name="hlo-text", description="from HLO text", default=False),
        CompilerInfo(name="hlo-proto", description="from a serialised HLO module", default=False),
    ),
    starts_from={
        "stablehlo": (("stablehlo_bytecode", "xla_weights"),),
        "hlo-text": (("xla_hlo_dump", "xla_weights"),),
    },
    environment={
        "JAX_PLATFORMS": "cpu",  # frameworks only export here, in a child process
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "1",
        CACHE_VARIABLE: "{cache_dir}/xla_hlo",
        # XLA sizes its thread pool by this variable, and has no option for it.
        "PJRT_NPROC": "{threads}",
        # Otherwise, XLA would report all the memory that it reserves as peak memory.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    },
    packages={"jax": "jax", "jaxlib": "jaxlib", "flax": "flax"},
    reproducer="comparative_benchmark.xla_hlo.export:export_reproducer",
    extras=("xla-hlo",),
)
