"""Benchmark cases in JAX."""

from openxla.benchmark.comparative_suite import utils
from openxla.benchmark.comparative_suite.jax import model_definitions as models
from openxla.benchmark.def_types import BenchmarkCase

_SEED = {"absolute_tolerance": 0.5}

BERT_TINY_JAX_CASES = utils.build_benchmark_cases(models.BERT_TINY_JAX)
BERT_BASE_JAX_CASES = utils.build_benchmark_cases(models.BERT_BASE_JAX, verify_parameters=_SEED)
BERT_LARGE_JAX_CASES = utils.build_benchmark_cases(models.BERT_LARGE_JAX, verify_parameters=_SEED)
RESNET_TINY_JAX_CASES = utils.build_benchmark_cases(models.RESNET_TINY_JAX)
RESNET50_JAX_CASES = utils.build_benchmark_cases(models.RESNET50_JAX, verify_parameters=_SEED)

ALL_BENCHMARKS = utils.collect(globals(), BenchmarkCase)
