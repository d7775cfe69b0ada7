"""Benchmark cases in TensorFlow."""

from openxla.benchmark.comparative_suite import utils
from openxla.benchmark.comparative_suite.tf import model_definitions as models
from openxla.benchmark.comparative_suite.tf import zoo_benchmark_definitions
from openxla.benchmark.def_types import BenchmarkCase

_SEED = {"absolute_tolerance": 0.5}

BERT_TINY_TF_CASES = utils.build_benchmark_cases(models.BERT_TINY_TF)
BERT_BASE_TF_CASES = utils.build_benchmark_cases(models.BERT_BASE_TF, verify_parameters=_SEED)
BERT_LARGE_TF_CASES = utils.build_benchmark_cases(models.BERT_LARGE_TF, verify_parameters=_SEED)
RESNET_TINY_TF_CASES = utils.build_benchmark_cases(models.RESNET_TINY_TF)
RESNET50_TF_CASES = utils.build_benchmark_cases(models.RESNET50_TF, verify_parameters=_SEED)
VIT_TINY_TF_CASES = utils.build_benchmark_cases(models.VIT_TINY_TF)
VIT_BASE_TF_CASES = utils.build_benchmark_cases(models.VIT_BASE_TF, verify_parameters=_SEED)
EFFICIENTNET_TINY_TF_CASES = utils.build_benchmark_cases(models.EFFICIENTNET_TINY_TF)
EFFICIENTNETB0_TF_CASES = utils.build_benchmark_cases(
    models.EFFICIENTNETB0_TF, verify_parameters=_SEED
)
EFFICIENTNETB7_TF_CASES = utils.build_benchmark_cases(
    models.EFFICIENTNETB7_TF, verify_parameters=_SEED
)

ZOO_TF_CASES = zoo_benchmark_definitions.ALL_BENCHMARKS

ALL_BENCHMARKS = utils.collect(globals(), BenchmarkCase)
