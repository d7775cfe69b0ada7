"""Compares machine-learning compilers on the same verified workloads.

    import comparative_benchmark as cb

    results = cb.run("models/BERT_TINY_FP32_.+", backends="jax_xla,pt_inductor")
    print(results)
    results.verdicts().to_pandas()
    cb.compare(cb.load("before.json"), results).regressions

Importing it imports no framework, and of its own modules only those that are used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from openxla.benchmark import old_names

if TYPE_CHECKING:
    from comparative_benchmark.api import (
        Comparisons,
        Progress,
        Results,
        ResultsFileError,
        RunRequest,
        UsageError,
        compare,
        list_backends,
        list_cases,
        load,
        run,
    )
    from comparative_benchmark.studies.explain.explained import explain_results

__all__ = [
    "Comparisons",
    "Progress",
    "Results",
    "ResultsFileError",
    "RunRequest",
    "UsageError",
    "compare",
    "explain_results",
    "list_backends",
    "list_cases",
    "load",
    "run",
]


old_names.install(
    "comparative_benchmark",
    {
        "artifacts": "maintenance.artifacts",
        "backends.causes": "backends.missing_packages",
        "backends.cpus": "backends.host_settings",
        "backends.digests": "backends.exported_programs",
        "backends.foreign": "backends.model_protocols",
        "backends.frameworks.generation_export": "backends.frameworks.torch_modules",
        "backends.frameworks.onnx_export": "backends.frameworks.torch_export",
        "backends.free_memory": "backends.host_settings",
        "backends.generation_export": "backends.frameworks.torch_modules",
        "backends.generation_parts": "backends.model_protocols",
        "backends.hlo_operators": "backends.operator_profile",
        "backends.jax_models": "backends.frameworks.jax_models",
        "backends.onnx_export": "backends.frameworks.torch_export",
        "backends.outputs": "backends.api",
        "backends.profiles": "backends.operator_profile",
        "backends.program_reference": "backends.exported_programs",
        "backends.published_programs": "backends.exported_programs",
        "backends.published_weights": "backends.exported_programs",
        "backends.recipes.rounding": "backends.recipes.definition",
        "backends.recipes.table": "backends.recipes.registry",
        "backends.remedies": "backends.missing_packages",
        "backends.reproducing": "backends.exported_programs",
        "backends.resident_backend": "backends.resident_programs",
        "backends.tensorflow_models": "backends.frameworks.tensorflow_models",
        "backends.tf32": "backends.host_settings",
        "backends.torch_export": "backends.frameworks.torch_export",
        "backends.torch_modules": "backends.frameworks.torch_modules",
        "backends.training": "backends.model_protocols",
        "backends.xla_executables": "backends.frameworks.xla_executables",
        "bisection": "studies.bisection",
        "doctor": "maintenance.doctor",
        "explain": "studies.explain",
        "formats": "reporting.formats",
        "history": "reporting.history",
        "judge": "analysis.verification",
        "machine": "analysis.machine",
        "machine.gpu_clocks": "analysis.machine.gpu_state",
        "maintenance.artifacts.exporters": "maintenance.artifacts",
        "micro": "studies.micro",
        "onboarding": "maintenance.onboarding",
        "packages": "interop",
        "packages.milabench": "interop.milabench",
        "parity": "studies.parity",
        "recipes": "backends.recipes",
        "report": "reporting.report",
        "reporting.history.writing": "reporting.history.database",
        "repro": "studies.reproduce",
        "results.codec": "results.results_file",
        "results.compare": "results.comparing.compare",
        "results.comparison": "results.comparing.comparison",
        "results.explanations": "results.comparing.explanations",
        "results.insights": "results.comparing",
        "results.roofs": "results.comparing.roofs",
        "results.settings": "results.case",
        "results.store": "results.results_file",
        "roofline": "analysis.roofline",
        "runs": "engine",
        "stats": "analysis.stats",
        "studies.reproduce.exporting": "backends.exported_programs",
        "tflite.export": "tflite.backend",
        "torchbench": "sources.torchbench",
        "userbenchmarks": "interop.userbenchmarks",
        "worker": "engine.worker",
    },
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "studies.explain.explained" if name == "explain_results" else "api"
    return getattr(importlib.import_module(f"comparative_benchmark.{module}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
