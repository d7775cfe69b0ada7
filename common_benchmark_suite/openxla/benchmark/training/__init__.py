"""Training: a few steps of the suite's own models, the same ones in three frameworks.

A training case is a case like any other. Its inputs are the batches of `STEPS` steps, its outputs
what these steps led to from the checkpoint on: losses, norms of gradients, and a digest of how each
weight has changed. An iteration is one of the steps.
"""

from openxla.benchmark.training.optimizers import OPTIMIZERS, STEPS, Optimizer

__all__ = ["OPTIMIZERS", "STEPS", "Optimizer"]
