"""The models that the check races on a GPU: BERT-base, ResNet-50 and ViT-base at batch 1 and 32.

The published variants of these have no common batch sizes. A suite of its own, so that the check
neither adds names to the catalogue nor depends on what is added there:

    cbs list --suite comparative_benchmark.gpu_check.suite -name 'models/CHECK_.+'
"""

import attrs

from openxla.benchmark.comparative_suite import families, utils
from openxla.benchmark.comparative_suite.families import Family
from openxla.benchmark.comparative_suite.jax import model_definitions as jax_models
from openxla.benchmark.comparative_suite.pt import model_definitions as pt_models

BATCHES = (1, 32)


def _family(family: Family, name: str, **parameters: int) -> Family:
    return attrs.evolve(
        family,
        name=f"CHECK_{name}_${{DATA_TYPE}}_${{FRAMEWORK}}_BATCH${{batch_size}}",
        axis="batch_size",
        sizes=BATCHES,
        tags=(utils.BATCH_TAG,),
        parameters=parameters,
        tflite=(),
        published=False,
    )


BERT_BASE = _family(families.BERT_BASE, "BERT_BASE", seq_len=128)
RESNET50 = _family(families.RESNET50, "RESNET50")
VIT_BASE = _family(families.VIT_BASE, "VIT_BASE")

MODELS = [
    *BERT_BASE.models(pt_models.BERT_PT_IMPL, "PT").values(),
    *BERT_BASE.models(jax_models.BERT_JAX_IMPL, "JAX").values(),
    *RESNET50.models(pt_models.RESNET_PT_IMPL, "PT").values(),
    *RESNET50.models(jax_models.RESNET_JAX_IMPL, "JAX").values(),
    *VIT_BASE.models(pt_models.VIT_PT_IMPL, "PT").values(),
    *VIT_BASE.models(jax_models.VIT_JAX_IMPL, "JAX").values(),
]

ALL_BENCHMARKS = list(utils.build_benchmark_cases({model.name: model for model in MODELS}).values())
