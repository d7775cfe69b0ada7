"""BERTs that are wrong in one way each, in two frameworks and three types; and right ones."""

from cbs_test_plugin.adversaries import COARSE, COARSER, FUNCTIONS, OF_THE_MODEL
from openxla.benchmark import def_types, testdata
from openxla.benchmark.comparative_suite import utils

_FRAMEWORKS = {
    "pt": def_types.ModelFrameworkType.PYTORCH,
    "jax": def_types.ModelFrameworkType.JAX,
}
# What a framework's module does not have.
_NOT_IN = {"jax": ("layer-skipped", "one-behind"), "pt": ()}


def _model(framework: str, fault: str, data_type: str) -> def_types.Model:
    return def_types.Model(
        name=f"BERT_{fault.upper().replace('-', '_')}_{data_type.upper()}_{framework.upper()}",
        tags=["adversary"],
        model_impl=def_types.ModelImplementation(
            name=f"BERT_{framework}_adversary",
            tags=[],
            framework_type=_FRAMEWORKS[framework],
            module_path=f"cbs_test_plugin.adversaries_{framework}",
            architecture="openxla.benchmark.models.architectures.bert",
        ),
        model_parameters={
            "model_name": "bert-tiny",
            "data_type": data_type,
            "batch_size": 4,
            "seq_len": 32,
            "fault": fault,
        },
    )


def _faults(framework: str, data_type: str) -> list[str]:
    every = (*FUNCTIONS, *OF_THE_MODEL) if data_type == "fp32" else (*COARSE,)
    return [fault for fault in (*every, *COARSER[data_type]) if fault not in _NOT_IN[framework]]


# The good ones first: they make the truth that the others are judged by.
MODELS = [
    _model(framework, fault, data_type)
    for data_type in ("fp32", "fp16", "bf16")
    for framework in _FRAMEWORKS
    for fault in ("none", *_faults(framework, data_type))
]

ALL_BENCHMARKS = [
    def_types.BenchmarkCase.build(model=model, input_data=testdata.INPUT_DATA_MODEL_DEFAULT)
    for model in MODELS
]

assert len(utils.collect(globals(), def_types.Model)) == len(MODELS)
