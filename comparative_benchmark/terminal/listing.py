"""Cases and backends as plain values, for Python and for `cbs list` and `cbs backends --json`."""

import os
import re
from collections.abc import Sequence
from typing import Any, Literal

from comparative_benchmark.errors import UsageError
from comparative_benchmark.request import RunRequest
from comparative_benchmark.sources.selection import select
from openxla.benchmark.comparative_suite.catalog import Expression
from openxla.benchmark.def_types import BenchmarkCase, Workload
from openxla.benchmark.workloads import workload_of


def list_backends() -> dict[str, dict[str, Any]]:
    """Returns each backend by name: its models, missing packages and compilers.

    If packages are missing, `install` is the command that installs them.
    """
    # Imported late, so that `cbs list` starts without numpy.
    from comparative_benchmark.backends.api import backends

    listed = {}
    for backend in backends().values():
        missing = sorted({m for f in backend.modules for m in backend.missing_modules(f)})
        listed[backend.name] = {
            "models": [framework.value for framework in backend.modules],
            "missing_packages": missing,
            "install": backend.absence(missing).commands if missing else None,
            "compilers": {
                compiler.name: {
                    "description": compiler.description,
                    "options": list(compiler.options),
                    "takes_recipes": compiler.takes_recipes,
                }
                for compiler in backend.compilers
            },
        }
    return listed


def list_recipes() -> dict[str, dict[str, Any]]:
    """Returns each recipe by its usage: its description, and the backends that apply it."""
    from comparative_benchmark.backends.recipes import recipes

    return {
        recipe.usage: {"description": recipe.description, "backends": list(recipe.by_backend)}
        for recipe in recipes().values()
    }


def list_cases(
    name: str | None = None,
    *,
    test: Literal["eval", "train"] = "eval",
    tag: str | Sequence[str] = (),
    framework: str | Sequence[str] | None = None,
    suite: str | Sequence[str] = (),
    suite_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    workload: str | None = None,
) -> list[dict[str, Any]]:
    """Returns the cases that `cbs list` prints, each as a dict.

    Args:
      name: regular expression that must match a whole case name, or plain text in one.
      test: cases that compute outputs (eval), or that take training steps (train).
      tag: tags that cases must have.
      framework: framework of the model, e.g. `pt` or `["pt", "jax"]`.
      suite: additional modules with ALL_BENCHMARKS.
      suite_dir: folders of definitions, instead of the suite's own cases.
      workload: regular expression to search for in the workload's id.

    Raises:
      UsageError: an expression or a framework is invalid.
      NoMatchError: no case has such a name.
    """
    given = {key: value for key, value in locals().items() if key != "workload"}
    request = RunRequest(**given)
    cases = select(
        request.name,
        test=request.test,
        tags=request.tag,
        framework=request.framework,
        suites=request.suites,
    )
    return [as_row(*match) for match in matching(cases, workload)]


def matching(
    cases: Sequence[BenchmarkCase], expression: str | None
) -> list[tuple[BenchmarkCase, Workload]]:
    """Returns cases with their workloads if the workload's id matches an expression.

    Raises:
      UsageError: the expression is malformed.
    """
    rows = [(case, workload_of(case)) for case in cases]
    if not expression:
        return rows
    try:
        pattern = Expression(expression)
        return [row for row in rows if pattern.search(row[1].id)]
    except re.error as error:
        raise UsageError(
            f"--workload {expression!r} is not a regular expression: {error}"
        ) from error


def as_row(case: BenchmarkCase, workload: Workload) -> dict[str, Any]:
    """Returns a case as plain values."""
    return {
        "benchmark_name": case.name,
        "framework": case.model.model_impl.framework_type.value,
        "model": case.model.name,
        "model_parameters": dict(case.model.model_parameters),
        "tags": list(case.tags),
        "verify_parameters": dict(case.verify_parameters),
        "artifacts_dir_url": case.model.artifacts_dir_url,
        "exported_model_types": [kind.value for kind in case.model.exported_model_types],
        "workload": workload.id,
        "inputs": [str(spec) for spec in workload.inputs],
    }
