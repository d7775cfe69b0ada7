"""The optimizers, their hyper-parameters, and how many steps are taken: one list for all."""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from openxla.benchmark.def_types import DefinitionError, Parameters

# Enough for momentum, bias correction and weight decay to act on what steps before have left.
STEPS = 3


@attrs.frozen(kw_only=True)
class Optimizer:
    """An optimizer with all that it needs to know; every weight is treated alike.

    `sgd` is that of `torch.optim.SGD`: with g' = g + weight_decay * w, m = momentum * m + g', and
    w -= learning_rate * m. `adamw` is Loshchilov and Hutter 2019 (arXiv:1711.05101), algorithm 2,
    with a constant schedule: decay apart from the gradient, and moments corrected for their start
    at 0.

    Attributes:
      name: how cases call it.
      learning_rate: of every step.
      weight_decay: coupled in `sgd`, decoupled in `adamw`.
      momentum: of `sgd`.
      betas: decay of both moments of `adamw`.
      epsilon: added to the root of the second moment. A gradient that is 0 but for rounding, as
        that of a key's bias, must not become a step of full length: hence 1e-5, not 1e-8.
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
                name="adamw",
                learning_rate=1e-3,
                weight_decay=0.1,
                betas=(0.9, 0.999),
                epsilon=1e-5,
            ),
        )
    }
)


def optimizer_of(parameters: Parameters) -> Optimizer:
    """Returns the optimizer that the parameter `train` names.

    Raises:
      DefinitionError: there is none.
    """
    name = parameters.get("train")
    if name not in OPTIMIZERS:
        known = ", ".join(OPTIMIZERS)
        raise DefinitionError(f"parameter 'train' must be one of {known}, got {name!r}")
    return OPTIMIZERS[str(name)]
