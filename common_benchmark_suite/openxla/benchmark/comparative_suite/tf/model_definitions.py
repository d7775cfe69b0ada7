"""Models in TensorFlow from the `zoo`, e.g. `BERT_TINY_TF`, and their implementations."""

from openxla.benchmark.comparative_suite import utils, zoo
from openxla.benchmark.def_types import Model

globals().update(zoo.own("TF"))

ALL_MODELS = utils.collect(globals(), Model)
