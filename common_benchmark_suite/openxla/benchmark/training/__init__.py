"""Training: a few steps of the suite's own models, the same in three frameworks.

Training cases are ordinary cases. The inputs are the batches of `STEPS` steps. The outputs are the
results of these steps, starting from the checkpoint: losses, gradient norms, and a digest of the
change of each weight. Each step is one iteration.
"""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from openxla.benchmark.def_types import DefinitionError, Parameters

# Enough for momentum, bias correction and weight decay to act on results of earlier steps.
STEPS = 3


@attrs.frozen(kw_only=True)
class Optimizer:
    """An optimizer with its hyper-parameters; all weights are treated alike.

    `sgd` follows `torch.optim.SGD`: with g' = g + weight_decay * w, m = momentum * m + g', and w
    -= learning_rate * m. `adamw` is Loshchilov and Hutter 2019 (arXiv:1711.05101), algorithm 2,
    with a constant schedule: decay separate from the gradient, and moments corrected for their
    start at 0.

    Attributes:
      name: name in cases.
      learning_rate: constant over all steps.
      weight_decay: coupled in `sgd`, decoupled in `adamw`.
      momentum: momentum of `sgd`.
      betas: decay of both moments of `adamw`.
      epsilon: added to the root of the second moment. It is 1e-5, not 1e-8, so that a gradient that
        is 0 except for rounding, such as a key bias's, does not cause a full step.
    """

    name: str
    learning_rate: float
    weight_decay: float
    momentum: float = 0.0
    betas: tuple[float, float] = (0.0, 0.0)
    epsilon: float = 0.0


OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType(
    {
        item.name: item
        for item in (
            Optimizer(name="sgd", learning_rate=0.01, weight_decay=0.01, momentum=0.9),
            Optimizer(
                name="adamw", learning_rate=1e-3, weight_decay=0.1, betas=(0.9, 0.999), epsilon=1e-5
            ),
        )
    }
)


def optimizer_of(parameters: Parameters) -> Optimizer:
    """Returns the optimizer that the parameter `train` names.

    Raises:
      DefinitionError: the optimizer is unknown.
    """
    name = parameters.get("train")
    if name not in OPTIMIZERS:
        known = ", ".join(OPTIMIZERS)
        raise DefinitionError(f"parameter 'train' must be one of {known}, got {name!r}")
    return OPTIMIZERS[str(name)]
