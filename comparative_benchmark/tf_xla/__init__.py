"""TensorFlow: compiled by XLA, as a graph, or eager."""

from comparative_benchmark.backends.api import BackendInfo, CompilerInfo
from comparative_benchmark.backends.missing_packages import setup_script
from openxla.benchmark.def_types import ModelFrameworkType
from openxla.benchmark.installation import install_command

BACKEND = BackendInfo(
    name="tf_xla",
    implementation="comparative_benchmark.tf_xla.backend:TfXla",
    level="framework_level",
    modules={ModelFrameworkType.TF_V2: ("tensorflow", "keras")},
    install=install_command("tf-xla"),
    setup_script=setup_script("tf_xla"),
    compilers=(
        CompilerInfo(name="xla", description="tf.function(jit_compile=True)", trains=True),
        CompilerInfo(
            name="graph",
            description="tf.function, with Grappler and TensorFlow's kernels",
            variant=True,
            trains=True,
        ),
        CompilerInfo(name="eager", description="op by op, no compiler", default=False, trains=True),
    ),
    reference="comparative_benchmark.tf_xla.reference:compute",
    environment={
        "KERAS_BACKEND": "tensorflow",
        # Set here, because TensorFlow ignores calls after its initialisation. Both counts are
        # TensorFlow's defaults on a machine with that many CPUs.
        "TF_NUM_INTRAOP_THREADS": "{threads}",
        "TF_NUM_INTEROP_THREADS": "{threads}",
        "TF_XLA_FLAGS": "--tf_xla_persistent_cache_directory={cache_dir}/tf_xla",
        # Otherwise, TensorFlow would report all the memory that it reserves as peak memory.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    },
    packages={"tensorflow": "tensorflow", "keras": "keras"},
    reproducer="comparative_benchmark.tf_xla.backend:export_reproducer",
    extras=("tf-xla",),
)
