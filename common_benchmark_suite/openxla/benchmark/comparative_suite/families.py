"""Families of variants, declared once; each framework says which of them it implements."""

from collections.abc import Mapping, Sequence

import attrs

from openxla.benchmark.comparative_suite import utils
from openxla.benchmark.def_types import Model, ModelImplementation, Parameters, ParameterValue
from openxla.benchmark.models.architectures.base import element_type

DATA_TYPES = ("fp32", "fp16", "bf16")


@attrs.frozen(kw_only=True)
class Family:
    """Models of one configuration, along data types and one further axis.

    `name` may hold `${FRAMEWORK}`, `${DATA_TYPE}` (FP32 ...), `${ELEMENT_TYPE}` (F32 ...) and the
    axis, as in the names that the seed's users know.
    """

    name: str
    model_name: str
    axis: str
    sizes: Sequence[int]
    tags: Sequence[str]
    parameters: Parameters = attrs.field(factory=dict)
    data_types: Sequence[str] = DATA_TYPES

    def models(
        self,
        model_impl: ModelImplementation,
        framework: str,
        *,
        model_name: str | None = None,
        parameters_by_type: Mapping[str, Parameters] | None = None,
    ) -> dict[tuple[ParameterValue, ...], Model]:
        """Returns the family in one framework, by (data type, size).

        Args:
          model_impl: the implementation in that framework.
          framework: how names spell it, e.g. `PT`.
          model_name: another name for the same configuration, where users know one.
          parameters_by_type: further parameters of `create_model`, by data type.
        """
        models: dict[tuple[ParameterValue, ...], Model] = {}
        for data_type in self.data_types:
            fields = {
                "FRAMEWORK": framework,
                "DATA_TYPE": data_type.upper(),
                "ELEMENT_TYPE": element_type(data_type).upper(),
                self.axis: f"${{{self.axis}}}",
            }
            template = utils.ModelTemplate(
                name=utils.substitute(self.name, fields),
                tags=self.tags,
                model_impl=model_impl,
                model_parameters={
                    "data_type": data_type,
                    "model_name": model_name or self.model_name,
                    **self.parameters,
                    **(parameters_by_type or {}).get(data_type, {}),
                },
            )
            variants = utils.build_models(template, {self.axis: self.sizes})
            models.update({(data_type, *key): model for key, model in variants.items()})
        return models


BERT_TINY = Family(
    name="BERT_TINY_${DATA_TYPE}_${FRAMEWORK}_32XI32_BATCH${batch_size}",
    model_name="bert-tiny",
    axis="batch_size",
    sizes=(1, 4),
    tags=(utils.BATCH_TAG, "tiny"),
    parameters={"seq_len": 32},
)

BERT_BASE = Family(
    name="BERT_BASE_${DATA_TYPE}_${FRAMEWORK}_I32_SEQLEN${seq_len}",
    model_name="bert-base-uncased",
    axis="seq_len",
    sizes=(8, 32, 64, 128, 256, 512),
    tags=(utils.SEQLEN_TAG,),
    parameters={"batch_size": 1},
)

BERT_LARGE = Family(
    name="BERT_LARGE_${DATA_TYPE}_${FRAMEWORK}_384XI32_BATCH${batch_size}",
    model_name="bert-large-uncased",
    axis="batch_size",
    sizes=(1, 16, 24, 32, 48, 64, 512, 1024, 1280),
    tags=(utils.BATCH_TAG,),
    parameters={"seq_len": 384},
)

RESNET_TINY = Family(
    name="RESNET_TINY_${DATA_TYPE}_${FRAMEWORK}_3X32X32X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="resnet-tiny",
    axis="batch_size",
    sizes=(1, 4),
    tags=(utils.BATCH_TAG, "tiny"),
)

RESNET50 = Family(
    name="RESNET50_${DATA_TYPE}_${FRAMEWORK}_3X224X224X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="microsoft/resnet-50",
    axis="batch_size",
    sizes=(1, 8, 64, 128, 256, 2048),
    tags=(utils.BATCH_TAG,),
)
