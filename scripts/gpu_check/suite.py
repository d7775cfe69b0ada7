"""The models that the check races on a GPU: BERT-base, ResNet-50 and ViT-base at batch 1 and 32.

The published variants of these have no common batch sizes. A suite of its own, so that the check
neither adds names to the catalogue nor depends on what is added there:

    cbs list --suite gpu_check.suite -name 'models/CHECK_.+'
"""

import attrs

from openxla.benchmark.comparative_suite import families, utils, zoo
from openxla.benchmark.comparative_suite.families import Family
from openxla.benchmark.def_types import BenchmarkCase

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
        verify_parameters={},
        published=False,
        changes={},
    )


FAMILIES = {
    "CHECK_BERT_BASE": _family(zoo.BERT_BASE, "BERT_BASE", seq_len=128),
    "CHECK_RESNET50": _family(zoo.RESNET50, "RESNET50"),
    "CHECK_VIT_BASE": _family(zoo.VIT_BASE, "VIT_BASE"),
}

ALL_BENCHMARKS = utils.collect(
    {name: families.definitions(name, FAMILIES) for name in ("PT", "JAX")}, BenchmarkCase
)
