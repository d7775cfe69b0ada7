"""Models in JAX from the `zoo`, e.g. `BERT_TINY_JAX`, and their implementations."""

from openxla.benchmark.comparative_suite import families, utils, zoo
from openxla.benchmark.def_types import Model

# The OpenXLA suite's name of VIT_BASE in fp32 with one picture; its definition has no type.
VIT_CLASSIFICATION_JAX = Model(
    name="VIT_CLASSIFICATION_JAX_3X224X224XF32",
    tags=["fp32", "batch-1"],
    model_impl=families.VIT.implementation("JAX"),
    model_parameters={"batch_size": 1, "model_name": "google/vit-base-patch16-224"},
    exported_model_types=families.exports_from_jax("fp32", tflite=["fp32"]),
)

globals().update(zoo.own("JAX"))

ALL_MODELS = utils.collect(globals(), Model)
