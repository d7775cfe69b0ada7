"""Benchmark cases of training: of the suite's own models, in each framework, by each optimizer."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import attrs

from openxla.benchmark import testdata
from openxla.benchmark.comparative_suite import families
from openxla.benchmark.comparative_suite.networks import FRAMEWORK_TYPES
from openxla.benchmark.def_types import BenchmarkCase, Model, ModelImplementation
from openxla.benchmark.training import OPTIMIZERS

TAG = "training"
_MODULES: Mapping[str, str] = MappingProxyType(
    {"PT": "in_torch", "JAX": "in_jax", "TF": "in_tensorflow"}
)
_FAMILIES = ("BERT_TINY", "GPT2LMHEAD_TINY", "RESNET_TINY", "VIT_TINY")
_DATA_TYPE = "fp32"
# Of the spread of an output, for a reference that is right by luck. What gradients leave of a
# weight whose own gradient is 0, as of a key's bias, is rounding and no more: docs/design/0029.
VERIFY_PARAMETERS = MappingProxyType({"rmse_floor": 1e-3})


def all_cases() -> list[BenchmarkCase]:
    """Returns every training case; they are no part of the catalogue."""
    return [
        BenchmarkCase.build(
            model=model,
            input_data=testdata.INPUT_DATA_MODEL_DEFAULT,
            verify_parameters=VERIFY_PARAMETERS,
        )
        for framework in _MODULES
        for family in _FAMILIES
        for optimizer in OPTIMIZERS
        for model in _models(framework, family, optimizer)
    ]


def named(model: str) -> BenchmarkCase | None:
    """Returns the training case of the model of that name; None if there is none."""
    return next((case for case in all_cases() if case.model.name == model), None)


def implementation(framework: str) -> ModelImplementation:
    """Returns how models are trained in a framework, e.g. `PT`."""
    return ModelImplementation(
        name=f"TRAINING_{framework}",
        tags=[TAG],
        framework_type=FRAMEWORK_TYPES[framework],
        module_path=f"openxla.benchmark.training.{_MODULES[framework]}",
        architecture="openxla.benchmark.training.architecture",
    )


def _models(framework: str, family: str, optimizer: str) -> Iterator[Model]:
    """Yields e.g. `BERT_TINY_TRAIN_ADAMW_FP32_PT_32XI32_BATCH4`, of the model without `TRAIN`."""
    for (data_type, *_), model in families.own(framework)[f"{family}_{framework}"].items():
        if data_type == _DATA_TYPE:
            yield attrs.evolve(
                model,
                name=model.name.replace(family, f"{family}_TRAIN_{optimizer.upper()}", 1),
                tags=(*(tag for tag in model.tags if tag != families.TINY_ZOO_TAG), optimizer),
                model_impl=implementation(framework),
                model_parameters={**model.model_parameters, "train": optimizer},
                exported_model_types=(),
            )
