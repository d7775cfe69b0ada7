"""Families of variants, declared once and expanded to models and cases of each framework."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from openxla.benchmark.comparative_suite import exports, utils
from openxla.benchmark.comparative_suite.networks import Network
from openxla.benchmark.def_types import (
    Model,
    ModelArtifactType,
    ModelImplementation,
    Parameters,
    ParameterValue,
)
from openxla.benchmark.models.architectures.base import element_type

DATA_TYPES = ("fp32", "fp16", "bf16")

# The first variant of each tiny family: every architecture once in every framework, to exercise all
# code of all backends within minutes.
TINY_ZOO_TAG = "tiny-zoo"
# The tolerance in the OpenXLA suite's definitions.
PUBLISHED_TOLERANCE: Mapping[str, float] = MappingProxyType({"absolute_tolerance": 0.5})

_CHANNELS_FIRST = re.compile(r"_(\d+)X(\d+)X(\d+)X(\$\{ELEMENT_TYPE\})")

Models = dict[tuple[ParameterValue, ...], Model]


@attrs.frozen(kw_only=True)
class Family:
    """Models of one configuration, over data types and one further axis.

    `name` may hold `${FRAMEWORK}`, `${DATA_TYPE}` (FP32 ...), `${ELEMENT_TYPE}` (F32 ...) and the
    axis, as in the OpenXLA suite's names. Tags may contain these, and `${data_type}` (fp32 ...).
    For a family `published` by the OpenXLA suite, `tflite` lists the data types converted to TFLite
    from JAX, and `tensorflow_tflite` the conversions of the fp32 model in TensorFlow. Other
    families are exported to verified formats, see `exports`. `changes` overrides fields by
    framework.
    """

    name: str
    network: Network | None = None
    model_name: str
    axis: str = "batch_size"
    sizes: Sequence[int]
    tags: Sequence[str] = (utils.BATCH_TAG,)
    parameters: Parameters = attrs.field(factory=dict)
    parameters_by_type: Mapping[str, Parameters] = attrs.field(factory=dict)
    data_types: Sequence[str] = DATA_TYPES
    tflite: Sequence[str] = ()
    tensorflow_tflite: Sequence[ModelArtifactType] = (ModelArtifactType.TFLITE_FP32,)
    published: bool = False
    in_tiny_zoo: bool = True
    verify_parameters: Mapping[str, float] = MappingProxyType({})
    changes: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

    def in_framework(self, framework: str) -> "Family":
        """Returns the family as described in one framework, e.g. `PT`."""
        family = attrs.evolve(self, **self.changes.get(framework, {}))
        return family.in_tensorflow() if framework == "TF" else family

    def models(self, model_impl: ModelImplementation, framework: str) -> Models:
        """Returns the family in one framework, by (data type, size).

        Args:
          model_impl: the implementation in that framework.
          framework: its spelling in names, e.g. `PT`.
        """
        models: Models = {}
        for data_type in self.data_types:
            fields = {
                "FRAMEWORK": framework,
                "DATA_TYPE": data_type.upper(),
                "ELEMENT_TYPE": element_type(data_type).upper(),
                "data_type": data_type,
                self.axis: f"${{{self.axis}}}",
            }
            parameters = {
                "data_type": data_type,
                "model_name": self.model_name,
                **self.parameters,
                **self.parameters_by_type.get(data_type, {}),
            }
            template = utils.ModelTemplate(
                name=utils.substitute(self.name, fields),
                tags=list(dict.fromkeys(utils.substitute(tag, fields) for tag in self.tags)),
                model_impl=model_impl,
                model_parameters=parameters,
                exported_model_types=self._exports(framework, model_impl, data_type, parameters),
            )
            variants = utils.build_models(template, {self.axis: self.sizes})
            if "tiny" in self.tags and self.in_tiny_zoo and data_type == self.data_types[0]:
                first = next(iter(variants))
                variants[first] = _in_tiny_zoo(variants[first])
            models.update({(data_type, *key): model for key, model in variants.items()})
        return models

    def _exports(
        self,
        framework: str,
        model_impl: ModelImplementation,
        data_type: str,
        parameters: Parameters,
    ) -> Sequence[ModelArtifactType]:
        if not self.published:
            return exports.proved(model_impl, {**parameters, self.axis: None})
        if framework == "JAX":
            return exports.from_jax(data_type, self.tflite)
        if framework == "TF":
            return exports.from_tensorflow(data_type, self.tensorflow_tflite)
        return exports.PROGRAMS

    def in_tensorflow(self) -> "Family":
        """Returns the family as described by the OpenXLA suite in TensorFlow.

        Names give pictures as channels-last, which is the layout in the models; their inputs are
        those of the other frameworks. The type is a tag, too.
        """
        return attrs.evolve(
            self,
            name=_CHANNELS_FIRST.sub(r"_\2X\3X\1X\4", self.name),
            tags=tuple(dict.fromkeys((*self.tags, "${data_type}"))),
        )


def _in_tiny_zoo(model: Model) -> Model:
    return attrs.evolve(model, tags=(*model.tags, TINY_ZOO_TAG))


def definitions(framework: str, families: Mapping[str, Family]) -> dict[str, Any]:
    """Returns implementations, models and cases of families in one framework, by their names.

    The framework's modules define them under these names, e.g. for a family `BERT_TINY` of the
    network `BERT`: `BERT_PT_IMPL`, `BERT_TINY_PT` and `BERT_TINY_PT_CASES`.
    """
    found: dict[str, Any] = {}
    for name, family in families.items():
        network = family.network
        assert network is not None, f"family {name} has no network"
        implementation = found.setdefault(
            f"{network.name}_{framework}_IMPL", network.implementation(framework)
        )
        models = family.in_framework(framework).models(implementation, framework)
        found[f"{name}_{framework}"] = models
        found[f"{name}_{framework}_CASES"] = utils.build_benchmark_cases(
            models,
            verify_parameters=PUBLISHED_TOLERANCE if family.published else family.verify_parameters,
        )
    return found
