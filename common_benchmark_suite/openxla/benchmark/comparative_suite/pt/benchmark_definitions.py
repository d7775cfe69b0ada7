"""Benchmark cases in PyTorch, made from the models of the `zoo`, e.g. `BERT_TINY_PT_CASES`."""

from openxla.benchmark.comparative_suite import utils, zoo
from openxla.benchmark.comparative_suite.pt import model_definitions as models
from openxla.benchmark.def_types import BenchmarkCase

EXAMPLE_FP32_PT_CASES = utils.build_batch_benchmark_cases(
    models.EXAMPLE_FP32_PT_BATCHES, verify_parameters={"absolute_tolerance": 0.1}
)

globals().update(zoo.own("PT"))
INPUT_SET_PT_CASES = zoo.input_set_cases("PT")

ALL_BENCHMARKS = utils.collect(globals(), BenchmarkCase)
