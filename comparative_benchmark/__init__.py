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
    from comparative_benchmark.explain.explained import explain_results

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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "explain.explained" if name == "explain_results" else "api"
    return getattr(importlib.import_module(f"comparative_benchmark.{module}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
