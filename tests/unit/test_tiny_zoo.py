"""The tag `tiny-zoo`: each architecture once in each framework."""

import re
from collections import Counter

from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.comparative_suite.families import TINY_ZOO_TAG
from openxla.benchmark.def_types import ModelFrameworkType
from openxla.benchmark.workloads import workload_of


def _model_name(case):
    return re.sub(r"_(PT|JAX|TF|TFLITE)_.*", "", case.model.name)


def test_each_tiny_architecture_is_there_once_in_each_framework():
    every = [case for case in catalog.all_benchmarks() if "tiny" in case.tags]
    zoo = [case for case in every if TINY_ZOO_TAG in case.tags]
    models = Counter((case.model.model_impl.name, _model_name(case)) for case in every)
    chosen = Counter((case.model.model_impl.name, case.model.name) for case in zoo)
    implementations = {implementation for implementation, _ in models}
    assert {implementation for implementation, _ in chosen} == implementations
    # One workload in PyTorch, JAX and TensorFlow.
    by_workload: dict[str, set[ModelFrameworkType]] = {}
    for case in zoo:
        framework = case.model.model_impl.framework_type
        if framework is not ModelFrameworkType.TFLITE:
            by_workload.setdefault(workload_of(case).digest, set()).add(framework)
    defaults = {
        workload_of(case).digest for case in zoo if case.input_data.name.endswith("DEFAULT")
    }
    assert all(
        len(frameworks) == 3 for digest, frameworks in by_workload.items() if digest in defaults
    )
