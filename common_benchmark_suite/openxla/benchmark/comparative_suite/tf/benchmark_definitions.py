"""Benchmark cases in TensorFlow: of the models of `families`, such as `BERT_TINY_TF_CASES`."""

from openxla.benchmark.comparative_suite import families, utils
from openxla.benchmark.def_types import BenchmarkCase

globals().update(families.own("TF"))

ALL_BENCHMARKS = utils.collect(globals(), BenchmarkCase)
