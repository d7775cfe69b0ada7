"""Models in TensorFlow: those of `families`, such as `BERT_TINY_TF`, and their implementations."""

from openxla.benchmark.comparative_suite import families, utils
from openxla.benchmark.def_types import Model

globals().update(families.own("TF"))

ALL_MODELS = utils.collect(globals(), Model)
