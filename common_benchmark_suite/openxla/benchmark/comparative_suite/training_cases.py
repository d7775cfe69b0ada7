"""Benchmark cases of training: the suite's own models, in each framework, by optimizer."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import attrs

from openxla.benchmark import testdata
from openxla.benchmark.comparative_suite import families, utils
from openxla.benchmark.comparative_suite.families import FRAMEWORK_TYPES
from openxla.benchmark.def_types import BenchmarkCase, Model, ModelImplementation
from openxla.benchmark.training import OPTIMIZERS

TAG = "training"
_MODULES: Mapping[str, str] = MappingProxyType(
    {"PT": "in_torch", "JAX": "in_jax", "TF": "in_tensorflow"}
)
# The networks, by name, shape of a row and batch sizes. Networks of published size use lengths and
# batch sizes that are common in fine-tuning on one device.
_TINY, _TEXT, _PICTURE = (1, 4, 16), (1, 8, 32), "3X224X224X${ELEMENT_TYPE}"
_FAMILIES = {
    "BERT_TINY": ("32XI32", families.BERT, "bert-tiny", 32, _TINY),
    "GPT2LMHEAD_TINY": ("32XI32", families.GPT2, "gpt2-tiny", 32, _TINY),
    "RESNET_TINY": ("3X32X32X${ELEMENT_TYPE}", families.RESNET, "resnet-tiny", None, _TINY),
    "VIT_TINY": ("3X32X32X${ELEMENT_TYPE}", families.VIT, "vit-tiny", None, _TINY),
    "BERT_BASE": ("128XI32", families.BERT, "bert-base-uncased", 128, _TEXT),
    "GPT2LMHEAD": ("512XI32", families.GPT2, "gpt2", 512, (1, 4, 16)),
    "RESNET50": (_PICTURE, families.RESNET, "microsoft/resnet-50", None, _TEXT),
    "VIT_BASE": (_PICTURE, families.VIT, "google/vit-base-patch16-224", None, _TEXT),
}
_DATA_TYPES = ("fp32", "bf16")
# Relative to the spread of an output, in case the reference is right by chance. If a weight's
# gradient is 0, like a key bias's gradient, its change is only rounding: docs/design/0029.
_FLOOR: Mapping[str, float] = MappingProxyType({"rmse_floor": 1e-3})
# Outputs are float32 in both; the factor belongs to the type in which the network computes.
VERIFY_PARAMETERS = MappingProxyType(
    {"fp32": _FLOOR, "bf16": MappingProxyType({**_FLOOR, "rmse_factor": 1.9})}
)


def all_cases() -> list[BenchmarkCase]:
    """Returns every training case; they are not part of the catalogue."""
    return [
        BenchmarkCase.build(
            model=model,
            input_data=testdata.INPUT_DATA_MODEL_DEFAULT,
            verify_parameters=VERIFY_PARAMETERS[str(model.model_parameters["data_type"])],
        )
        for framework in _MODULES
        for family in _FAMILIES
        for optimizer in OPTIMIZERS
        for model in _models(framework, family, optimizer)
    ]


def named(model: str) -> BenchmarkCase | None:
    """Returns the training case of a model by its name; None if the name is unknown."""
    return next((case for case in all_cases() if case.model.name == model), None)


def implementation(framework: str) -> ModelImplementation:
    """Returns the implementation of training in a framework, e.g. `PT`."""
    return ModelImplementation(
        name=f"TRAINING_{framework}",
        tags=[TAG],
        framework_type=FRAMEWORK_TYPES[framework],
        module_path=f"openxla.benchmark.training.{_MODULES[framework]}",
        architecture="openxla.benchmark.training.architecture",
    )


def _models(framework: str, family: str, optimizer: str) -> Iterable[Model]:
    """Returns models like `BERT_TINY_TRAIN_ADAMW_FP32_PT_32XI32_BATCH4`: their name and `TRAIN`."""
    shape, network, model_name, seq_len, sizes = _FAMILIES[family]
    size = ("tiny",) if family.endswith("_TINY") else ()
    length = {} if seq_len is None else {"seq_len": seq_len}
    described = families.Family(
        name=f"{family}_TRAIN_{optimizer.upper()}_${{DATA_TYPE}}_${{FRAMEWORK}}_{shape}"
        "_BATCH${batch_size}",
        network=network,
        model_name=model_name,
        sizes=sizes,
        tags=(utils.BATCH_TAG, *size, "${data_type}", optimizer),
        parameters={**length, "train": optimizer},
        data_types=_DATA_TYPES,
        in_tiny_zoo=False,
    )
    models = described.in_framework(framework).models(implementation(framework), framework)
    return [attrs.evolve(model, exported_model_types=()) for model in models.values()]
