"""A backend that calls numpy models directly, and one whose framework is never installed."""

from comparative_benchmark.backend_api import BackendInfo, CompilerInfo
from openxla.benchmark.def_types import ModelFrameworkType

BACKEND = BackendInfo(
    name="test_numpy",
    implementation="cbs_test_plugin.backend:NumpyBackend",
    level="framework_level",
    # Models of the toy architecture claim to be PyTorch's; no torch is imported.
    modules={ModelFrameworkType.PYTORCH: ("numpy",)},
    install="nothing",
    compilers=(
        CompilerInfo(
            name="direct",
            description="calls forward",
            options=("gambles", "gambles-too", "has-a-cache-elsewhere", "throttles", "tires"),
            autotunes=("gambles", "gambles-too"),
        ),
    ),
    environment={"CBS_TEST_CACHE_DIR": "{cache_dir}"},
    reference="cbs_test_truth:reference",
    packages={"cbs_test_plugin": "cbs-test-plugin"},
    reproducer="cbs_test_plugin.reproducer:export",
)

ABSENT = BackendInfo(
    name="test_absent",
    implementation="cbs_test_plugin.nowhere:Backend",
    level="framework_level",
    modules={ModelFrameworkType.PYTORCH: ("a_module_that_is_missing",)},
    install="pip install a-module-that-is-missing",
    compilers=(CompilerInfo(name="direct", description="never runs"),),
)
