"""`userbenchmark.utils` as TorchBench's userbenchmarks import it."""

from pathlib import Path

from comparative_benchmark.interop.userbenchmarks.authoring import (
    PLATFORMS,
    USERBENCHMARK_OUTPUT_PREFIX,
    TorchBenchABTestMetric,
    TorchBenchABTestResult,
    add_path,
    dump_output,
    get_default_debug_output_dir,
    get_default_output_json_path,
    get_output_dir,
    get_output_json,
)

REPO_PATH = Path(__file__).absolute().parent.parent

__all__ = [
    "PLATFORMS",
    "REPO_PATH",
    "USERBENCHMARK_OUTPUT_PREFIX",
    "TorchBenchABTestMetric",
    "TorchBenchABTestResult",
    "add_path",
    "dump_output",
    "get_default_debug_output_dir",
    "get_default_output_json_path",
    "get_output_dir",
    "get_output_json",
]
