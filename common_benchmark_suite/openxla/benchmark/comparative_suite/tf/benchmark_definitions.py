"""Benchmark cases in TensorFlow, made from the models of the `zoo`, e.g. `BERT_TINY_TF_CASES`."""

from openxla.benchmark.comparative_suite import utils, zoo
from openxla.benchmark.def_types import BenchmarkCase

globals().update(zoo.own("TF"))

ALL_BENCHMARKS = utils.collect(globals(), BenchmarkCase)
