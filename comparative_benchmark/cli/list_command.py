"""`cbs list`: the cases, and which of them are of one workload."""

import argparse
import json
import re
from collections.abc import Mapping
from typing import Any

from comparative_benchmark.terminal.options import EXIT_OK, UsageError, select
from openxla.benchmark.comparative_suite.expressions import Expression
from openxla.benchmark.def_types import BenchmarkCase, Workload
from openxla.benchmark.workloads import workload_of


def run(options: argparse.Namespace) -> int:
    """Prints the selected cases, each with its workload; returns 0.

    Raises:
      UsageError: an expression is malformed.
    """
    rows = [(case, workload_of(case)) for case in select(options)]
    if options.workload:
        try:
            pattern = Expression(options.workload)
            rows = [row for row in rows if pattern.search(row[1].id)]
        except re.error as error:
            raise UsageError(
                f"--workload {options.workload!r} is not a regular expression: {error}"
            ) from error
    if options.json:
        print(json.dumps([_as_json(case, workload) for case, workload in rows], indent=2))
        return EXIT_OK
    width = max((len(case.name) for case, _ in rows), default=0)
    for case, workload in rows:
        print(f"{case.name:<{width}}  {workload.id}")
    return EXIT_OK


def _as_json(case: BenchmarkCase, workload: Workload) -> Mapping[str, Any]:
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
