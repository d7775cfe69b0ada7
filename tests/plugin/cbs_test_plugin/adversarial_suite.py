"""Models that are wrong in one way each, in two frameworks and three types; and right ones.

BERTs for what may be wrong in one run, GPT-2s for what may go wrong from token to token, and linear
layers for what may be wrong with gradients.
"""

from cbs_test_plugin import adversaries_compiled, adversaries_generating, adversaries_training
from cbs_test_plugin.adversaries import (
    COARSE,
    COARSER,
    KEEPING,
    OF_THE_MODEL,
    OF_TORCH,
    ONE_OF_MANY,
    WHEN_TIMED,
)
from openxla.benchmark import def_types, testdata
from openxla.benchmark.comparative_suite import utils

_FRAMEWORKS = {"pt": def_types.ModelFrameworkType.PYTORCH, "jax": def_types.ModelFrameworkType.JAX}
# Limits of a framework's module: arrays and functions of JAX keep no state.
_NOT_IN = {"jax": ("layer-skipped", "one-behind", *OF_TORCH), "pt": ()}


def _model(
    framework: str, fault: str, data_type: str, tag: str = "adversary", **size: int
) -> def_types.Model:
    large = "LARGE_" if size else ""
    return def_types.Model(
        name=f"BERT_{_upper(fault)}_{large}{data_type.upper()}_{framework.upper()}",
        tags=[tag],
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
            **size,
        },
    )


def _upper(fault: str) -> str:
    return fault.upper().replace("-", "_")


def _faults(framework: str, data_type: str) -> list[str]:
    every = [*COARSE, *COARSER[data_type]]
    if data_type == "fp32":
        every += [*KEEPING, *OF_TORCH, *OF_THE_MODEL, "denormals-flushed"]
    return [fault for fault in every if fault not in _NOT_IN[framework]]


def _generator(framework: str, fault: str, data_type: str) -> def_types.Model:
    return def_types.Model(
        name=f"GPT2_{_upper(fault)}_{data_type.upper()}_{framework.upper()}",
        tags=["adversary"],
        model_impl=def_types.ModelImplementation(
            name=f"GPT2_{framework}_adversary",
            tags=[],
            framework_type=_FRAMEWORKS[framework],
            module_path="cbs_test_plugin.adversaries_generating",
            architecture="openxla.benchmark.models.architectures.gpt2",
        ),
        model_parameters={
            "model_name": "gpt2-tiny",
            "data_type": data_type,
            "batch_size": 2,
            "seq_len": 16,
            "max_new_tokens": 8,
            "fault": fault,
            "framework": framework,
        },
    )


def _layer(framework: str, fault: str, data_type: str) -> def_types.Model:
    return def_types.Model(
        name=f"LINEAR_{_upper(fault)}_{data_type.upper()}_{framework.upper()}",
        tags=["adversary"],
        model_impl=def_types.ModelImplementation(
            name=f"LINEAR_{framework}_adversary",
            tags=[],
            framework_type=_FRAMEWORKS[framework],
            module_path="cbs_test_plugin.adversaries_training",
            architecture="openxla.benchmark.operators.architecture",
        ),
        model_parameters={
            "model_name": "linear",
            "data_type": data_type,
            "m": 64,
            "k": 96,
            "n": 96,
            "direction": "forward_backward",
            "fault": fault,
            "framework": framework,
        },
    )


def _compiled(fault: str) -> def_types.Model:
    return def_types.Model(
        name=f"LINEAR_{_upper(fault)}_COMPILED_FP32_PT",
        tags=["compiled"],
        model_impl=def_types.ModelImplementation(
            name="LINEAR_compiled_adversary",
            tags=[],
            framework_type=_FRAMEWORKS["pt"],
            module_path="cbs_test_plugin.adversaries_compiled",
            architecture="openxla.benchmark.operators.architecture",
        ),
        model_parameters={
            "model_name": "linear",
            "data_type": "fp32",
            "m": 64,
            "k": 96,
            "n": 96,
            "direction": "forward",
            "fault": fault,
        },
    )


# One framework in all types is enough: limits go by the type, not by the framework.
_DATA_TYPES = {"pt": ("fp32", "fp16", "bf16"), "jax": ("fp32", "bf16")}
_GENERATING = {
    ("pt", "fp32"): adversaries_generating.FAULTS,
    ("jax", "fp32"): adversaries_generating.FAULTS,
    # Those that are nearest to what rounding does.
    ("pt", "bf16"): ("stale-cache", "repeats-a-token", "last-step-scaled"),
}

_TRAINING = {
    ("pt", "fp32"): adversaries_training.GRADIENTS,
    ("jax", "fp32"): adversaries_training.IN_ONE_RUN,
    ("pt", "bf16"): ("gradient-scaled", "gradient-of-before"),
}

# The good ones first: they make the truth that the others are judged by.
MODELS = [
    *(
        _model(framework, fault, data_type)
        for framework, data_types in _DATA_TYPES.items()
        for data_type in data_types
        for fault in ("none", *_faults(framework, data_type))
    ),
    *(_model("pt", fault, "bf16", batch_size=128, seq_len=128) for fault in ("none", ONE_OF_MANY)),
    *(
        _generator(framework, fault, data_type)
        for (framework, data_type), faults in _GENERATING.items()
        for fault in ("none", *faults)
    ),
    *(
        _layer(framework, fault, data_type)
        for (framework, data_type), faults in _TRAINING.items()
        for fault in ("none", *faults)
    ),
    *(_model("pt", fault, "fp32", tag="when-timed") for fault in WHEN_TIMED),
    *map(_compiled, (*adversaries_compiled.RIGHT, *adversaries_compiled.FAULTS)),
]

ALL_BENCHMARKS = [
    def_types.BenchmarkCase.build(model=model, input_data=testdata.INPUT_DATA_MODEL_DEFAULT)
    for model in MODELS
]

assert len(utils.collect(globals(), def_types.Model)) == len(MODELS)
