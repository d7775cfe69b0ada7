"""Benchmark cases in JAX, made from the models of the `zoo`, e.g. `BERT_TINY_JAX_CASES`."""

from openxla.benchmark.comparative_suite import families, utils, zoo
from openxla.benchmark.comparative_suite.jax import model_definitions as models
from openxla.benchmark.def_types import BenchmarkCase

VIT_CLASSIFICATION_JAX_CASES = utils.build_benchmark_cases(
    {"default": models.VIT_CLASSIFICATION_JAX}, verify_parameters=families.PUBLISHED_TOLERANCE
)

globals().update(zoo.own("JAX"))
INPUT_SET_JAX_CASES = zoo.input_set_cases("JAX")

ALL_BENCHMARKS = utils.collect(globals(), BenchmarkCase)
