"""One case for each kind of misbehaviour and one good case, all of one workload."""

from cbs_test_plugin.model import FAULTS
from openxla.benchmark import def_types, testdata
from openxla.benchmark.comparative_suite import utils


def _model(fault: str, module: str = "cbs_test_plugin.model") -> def_types.Model:
    return def_types.Model(
        name=f"TOY_{fault.upper().replace('-', '_')}",
        tags=["toy"],
        model_impl=def_types.ModelImplementation(
            name=f"TOY_{module.rpartition('.')[2]}",
            tags=[],
            framework_type=def_types.ModelFrameworkType.PYTORCH,
            module_path=module,
            architecture="cbs_test_plugin.architecture",
            reference="cbs_test_truth:reference",
        ),
        model_parameters={"model_name": "toy", "data_type": "fp32", "fault": fault},
    )


# The good one first: it makes the truth that the others are judged by.
MODELS = [
    _model("none"),
    *(_model(fault) for fault in FAULTS if fault != "none"),
    _model("no-create-model", "cbs_test_plugin.empty_model"),
    _model("no-module", "cbs_test_plugin.nowhere"),
]

ALL_BENCHMARKS = [
    def_types.BenchmarkCase.build(model=model, input_data=testdata.INPUT_DATA_MODEL_DEFAULT)
    for model in MODELS
]

assert len(utils.collect(globals(), def_types.Model)) == len(MODELS)
