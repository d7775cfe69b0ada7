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
    # One workload in every framework that has the model: a new one may lack some.
    defaults = [case for case in zoo if case.input_data.name.endswith("DEFAULT")]
    written = _frameworks(every)
    zoo_frameworks = _frameworks(defaults)
    assert zoo_frameworks == {digest: written[digest] for digest in zoo_frameworks}
    assert sum(len(frameworks) == 3 for frameworks in zoo_frameworks.values()) > 10


def _frameworks(cases):
    """Returns by workload the frameworks in which it is written, without converted files."""
    found: dict[str, set[ModelFrameworkType]] = {}
    for case in cases:
        framework = case.model.model_impl.framework_type
        if framework is not ModelFrameworkType.TFLITE:
            found.setdefault(workload_of(case).digest, set()).add(framework)
    return found
