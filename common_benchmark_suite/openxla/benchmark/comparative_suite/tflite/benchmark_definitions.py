"""Benchmark cases in TFLite."""

from openxla.benchmark.comparative_suite import utils
from openxla.benchmark.comparative_suite.tflite import model_definitions as models
from openxla.benchmark.def_types import BenchmarkCase

# The OpenXLA suite's tolerances, which apply in addition to each precision's.
_SEED = {
    "FP32": {"absolute_tolerance": 0.5},
    "FP16": {"absolute_tolerance": 0.5},
    "DYN_QUANT": {"absolute_tolerance": 2.0},
    "INT8": {"absolute_tolerance": 2.0},
}

BERT_TINY_TFLITE_CASES = utils.build_benchmark_cases(models.BERT_TINY_TFLITE)
VIT_TINY_TFLITE_CASES = utils.build_benchmark_cases(models.VIT_TINY_TFLITE)

BERT_BASE_TFLITE_CASES = {
    name: utils.build_benchmark_cases(of_precision, verify_parameters=_SEED[name])
    for name, of_precision in models.BERT_BASE_TFLITE.items()
}
VIT_CLASSIFICATION_TFLITE_CASES = {
    name: utils.build_benchmark_cases({"default": model}, verify_parameters=_SEED[name])
    for name, model in models.VIT_CLASSIFICATION_TFLITE.items()
}

ALL_BENCHMARKS = utils.collect(globals(), BenchmarkCase)
