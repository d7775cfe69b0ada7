"""JAX, compiled by XLA."""

from comparative_benchmark.backends.api import BackendInfo, CompilerInfo
from comparative_benchmark.backends.missing_packages import setup_script
from openxla.benchmark.def_types import ModelFrameworkType
from openxla.benchmark.installation import install_command

BACKEND = BackendInfo(
    name="jax_xla",
    implementation="comparative_benchmark.jax_xla.backend:JaxXla",
    level="framework_level",
    modules={ModelFrameworkType.JAX: ("jax", "flax")},
    recipe_modules=("qwix",),
    install=install_command("jax-xla"),
    setup_script=setup_script("jax_xla"),
    compilers=(
        CompilerInfo(
            name="xla",
            description="jax.jit, compiled ahead of time",
            takes_recipes=True,
            trains=True,
        ),
    ),
    reference="comparative_benchmark.jax_xla.reference:compute",
    environment={
        "JAX_PLATFORMS": "{jax_platforms}",
        "JAX_COMPILATION_CACHE_DIR": "{cache_dir}/jax",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        # XLA sizes its thread pool by this variable, and has no option for it.
        "PJRT_NPROC": "{threads}",
        # Otherwise, XLA would report all the memory that it reserves as peak memory.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    },
    packages={"jax": "jax", "jaxlib": "jaxlib", "flax": "flax", "qwix": "qwix"},
    reproducer="comparative_benchmark.jax_xla.backend:export_reproducer",
    extras=("jax-xla",),
)
