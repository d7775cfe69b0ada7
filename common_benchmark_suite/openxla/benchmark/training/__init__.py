"""Training: a few steps of the suite's own models, the same in three frameworks.

Training cases are ordinary cases. The inputs are the batches of `STEPS` steps. The outputs are the
results of these steps, starting from the checkpoint: losses, gradient norms, and a digest of the
change of each weight. Each step is one iteration.
"""

from openxla.benchmark.training.optimizers import OPTIMIZERS, STEPS, Optimizer

__all__ = ["OPTIMIZERS", "STEPS", "Optimizer"]
