"""Benchmark cases in PyTorch."""

from openxla.benchmark.comparative_suite import utils
from openxla.benchmark.comparative_suite.pt import model_definitions as models
from openxla.benchmark.def_types import BenchmarkCase

EXAMPLE_FP32_PT_CASES = utils.build_batch_benchmark_cases(
    models.EXAMPLE_FP32_PT_BATCHES, verify_parameters={"absolute_tolerance": 0.1}
)

_SEED = {"absolute_tolerance": 0.5}

BERT_TINY_PT_CASES = utils.build_benchmark_cases(models.BERT_TINY_PT)
BERT_BASE_PT_CASES = utils.build_benchmark_cases(models.BERT_BASE_PT, verify_parameters=_SEED)
BERT_LARGE_PT_CASES = utils.build_benchmark_cases(models.BERT_LARGE_PT, verify_parameters=_SEED)
RESNET_TINY_PT_CASES = utils.build_benchmark_cases(models.RESNET_TINY_PT)
RESNET50_PT_CASES = utils.build_benchmark_cases(models.RESNET50_PT, verify_parameters=_SEED)

ALL_BENCHMARKS = utils.collect(globals(), BenchmarkCase)
