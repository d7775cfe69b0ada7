"""A backend with wrong outputs that an error over the whole output hides."""

from comparative_benchmark.backend_api import BackendInfo, CompilerInfo
from openxla.benchmark.def_types import ModelFrameworkType

BACKEND = BackendInfo(
    name="test_spoiled",
    implementation="cbs_test_plugin.spoiled_backend:Spoiled",
    level="framework_level",
    modules={ModelFrameworkType.PYTORCH: ("torch",)},
    install="nothing",
    compilers=(
        CompilerInfo(name="zeros", description="0 instead of all unmasked values"),
        CompilerInfo(name="kept", description="the outputs of its first call in all others"),
    ),
    packages={"cbs_test_plugin": "cbs-test-plugin"},
)
