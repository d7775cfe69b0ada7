"""Definition and registry of operators."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeAlias

import attrs

from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.plugins import plugins
from openxla.benchmark.text import choices

GROUP = "openxla.benchmark.operators"

# Content of an argument: normal numbers; integers below a limit; or numbers that are distinct
# within a row, so that their order is the same in every framework.
Values: TypeAlias = Literal["normal", "indices", "distinct"]
Letter: TypeAlias = Literal["m", "k", "n"]
# The fields of an operator that hold its functions.
FRAMEWORKS = ("torch", "jax", "tensorflow")
# A shape that every operator supports: multiples of the heads of attention.
_SOME_SHAPE = (64, 64, 64)


@attrs.frozen(kw_only=True)
class Argument:
    """One input or result of an operator.

    Attributes:
      shape: shape of the array.
      values: see `Values`.
      below: exclusive limit of indices.
      dtype: element type; None for the type of the case.
    """

    shape: tuple[int, ...]
    values: Values = "normal"
    below: int = 0
    dtype: str | None = None


def unwritten(*_: Any) -> NoReturn:
    """Marks a framework in which an operator is not implemented."""
    raise NotImplementedError("the operator has no function for this framework")


def _function(given: Callable[..., Any] | None) -> Callable[..., Any]:
    return given or unwritten


@attrs.frozen(kw_only=True)
class Operator:
    """One operation.

    Attributes:
      name: name for users.
      description: one line, with the shapes.
      uses: which of m, k and n it depends on; the others count as 1.
      arguments: returns the inputs for m, k and n.
      results: returns the outputs for m, k and n.
      flops: returns the FLOPs of matrix products for m, k and n; None for none.
      torch, jax, tensorflow: the function in each framework, at least one. It takes tensors, and
        imports its framework itself. Without it, the operator is `unsupported` there.
      second_inputs: makes the second input from the first, if the usual rule gives invalid ones.
    """

    name: str
    description: str
    uses: tuple[Letter, ...]
    arguments: Callable[[int, int, int], Sequence[Argument]]
    results: Callable[[int, int, int], Sequence[Argument]]
    torch: Callable[..., Any] = attrs.field(default=None, converter=_function)
    jax: Callable[..., Any] = attrs.field(default=None, converter=_function)
    tensorflow: Callable[..., Any] = attrs.field(default=None, converter=_function)
    flops: Callable[[int, int, int], int] | None = None
    second_inputs: Callable[..., Sequence[Any]] | None = None

    def __attrs_post_init__(self) -> None:
        if not self.frameworks:
            raise DefinitionError(
                f"operator {self.name!r} has no function; define {' or '.join(FRAMEWORKS)}"
            )

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The fields of `FRAMEWORKS` in which it is implemented."""
        return tuple(name for name in FRAMEWORKS if getattr(self, name) is not unwritten)

    @property
    def is_differentiable(self) -> bool:
        """Whether any result is a floating-point number and has gradients."""
        return any(map(is_floating, self.results(*_SOME_SHAPE)))

    def shape(self, m: int, k: int, n: int) -> tuple[int, int, int]:
        """Returns the shape, with 1 for dimensions that the operator does not depend on."""
        given = {"m": m, "k": k, "n": n}
        m, k, n = (given[letter] if letter in self.uses else 1 for letter in given)
        return m, k, n


@attrs.frozen(kw_only=True)
class Layer(Operator):
    """An operator with weights, to which recipes can be applied.

    Attributes:
      weights: returns the seeded weights by name, for m, k and n. Matrices are [out, in], as in
        `torch.nn.Linear`.
      torch: returns a `torch.nn.Module` for m, k and n, whose parameters have the weights' names.
      jax, tensorflow: the function, called with a mapping of the weights and the inputs.
      statistics: names of weights without gradients.
    """

    weights: Callable[[int, int, int], Sequence[TensorInit]]
    statistics: tuple[str, ...] = ()

    def trained(self, m: int, k: int, n: int) -> list[TensorInit]:
        """Returns the weights that have gradients, in the order of `weights`."""
        return [init for init in self.weights(m, k, n) if init.name not in self.statistics]


def is_floating(argument: Argument) -> bool:
    """Returns whether an argument or result has a floating-point type, and so gradients."""
    return argument.values != "indices" and argument.dtype in (None, "f32", "f16", "bf16")


@functools.cache
def operators() -> Mapping[str, Operator]:
    """Returns every registered operator by name."""
    # Built-in operators come first, so a plug-in cannot replace them.
    by_name = {plugin.name: plugin.value for plugin in reversed(plugins(GROUP, Operator))}
    return {name: by_name[name] for name in sorted(by_name)}


def get(name: str) -> Operator:
    """Returns the operator of that name.

    Raises:
      DefinitionError: the operator is unknown.
    """
    if name not in operators():
        raise unknown(name)
    return operators()[name]


def unknown(name: str) -> DefinitionError:
    """Returns the error for an unknown name; its message lists the operators."""
    return DefinitionError(f"unknown operator {name!r}; {choices(name, operators())}")
