"""Counts the work of a JAX model from its jaxpr, which is traced, never run.

XLA's own count (`cost_analysis`) is not used: it counts the body of a loop once, and it adds
elementwise operations as this framework happens to write them. For the tiny BERT it is 9 % above
this count; for the tiny ResNet, where XLA leaves out products with padding, it is 5 % below.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.frameworks.jax_models import split
from openxla.benchmark.artifacts.workload_store import WorkloadCost

# Operations that read only part of their operand.
_INDEXING = ("gather", "slice", "dynamic_slice")


def cost(model: Any, inputs: Sequence[Array]) -> WorkloadCost:
    """Returns flops and compulsory bytes of `model` on `inputs`.

    Custom calls hold no operations that could be counted.

    Raises:
      ValueError: the work depends on values (`while`, branches of different cost), or it is in a
        kernel whose number of runs is unknown (Pallas).
    """
    apply, params = split(model)
    closed = jax.make_jaxpr(apply)(params, *inputs)
    count = _count(closed)
    given = closed.jaxpr.invars[-len(inputs) :] if inputs else []
    weights = [variable for variable in closed.jaxpr.invars if variable not in given]
    moved = sum(count.reads.get(weight, 0) for weight in weights) + sum(count.constants.values())
    moved += sum(map(_bytes, (*given, *closed.jaxpr.outvars)))
    return WorkloadCost.counted(count.flops, moved, of="the JAX model's jaxpr")


class _Count:
    """The work of a jaxpr.

    Attributes:
      flops: flops of its products and convolutions.
      reads: bytes read from each of its variables, at most the variable's size.
      constants: bytes read from each array that is written into the program, by the array's id.
    """

    def __init__(self) -> None:
        self.flops = 0
        self.reads: dict[Any, int] = {}
        self.constants: dict[int, int] = {}

    def read(self, atom: Any, size_bytes: int) -> None:
        """Records that this many bytes of an operand are read."""
        if not hasattr(atom, "val"):  # a literal number is part of the program
            self.reads[atom] = min(self.reads.get(atom, 0) + size_bytes, _bytes(atom))

    def note_constants(self, constants: Mapping[int, int]) -> None:
        """Records constants; a constant that several parts of a program hold is the same array."""
        for key, size_bytes in constants.items():
            self.constants[key] = max(self.constants.get(key, 0), size_bytes)


def _count(program: Any) -> _Count:
    """Counts a jaxpr, closed (with its constants) or not."""
    jaxpr = getattr(program, "jaxpr", program)
    found = _Count()
    for equation in jaxpr.eqns:
        bodies = list(_bodies(equation.params))
        if bodies:
            _add_bodies(found, equation, bodies)
            continue
        name = equation.primitive.name
        found.flops += _FORMULAS[name](equation) if name in _FORMULAS else 0
        for position, atom in enumerate(equation.invars):
            taken = position == 0 and name in _INDEXING
            found.read(atom, sum(map(_bytes, equation.outvars)) if taken else _bytes(atom))
    held = zip(jaxpr.constvars, getattr(program, "consts", ()))
    found.note_constants({id(array): found.reads.get(variable, 0) for variable, array in held})
    return found


def _add_bodies(found: _Count, equation: Any, bodies: Sequence[Any]) -> None:
    """Adds the work of an equation that contains programs: a call, a loop, a branch."""
    name = equation.primitive.name
    if name == "while":
        raise ValueError("the number of iterations of a `while` loop depends on values")
    counts = [_count(body) for body in bodies]
    if len({count.flops for count in counts}) > 1:
        raise ValueError(f"the bodies of `{name}` differ in cost")
    times = equation.params["length"] if name == "scan" else 1
    found.flops += times * counts[0].flops
    # The first operand of `cond` chooses the branch.
    operands = equation.invars[1:] if name == "cond" else equation.invars
    for body, count in zip(bodies, counts, strict=True):
        found.note_constants(count.constants)
        variables = getattr(body, "jaxpr", body).invars
        if name == "scan" or list(map(_shape, variables)) == list(map(_shape, operands)):
            for atom, variable in zip(operands, variables, strict=True):
                found.read(atom, times * count.reads.get(variable, 0))
        elif count.flops:
            raise ValueError(f"cannot determine how often `{name}` runs its body")
        else:  # the scalar function of a reduction or a scatter
            for atom in operands:
                found.read(atom, _bytes(atom))


def _bodies(params: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the programs among an equation's parameters, those in tuples included."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if hasattr(getattr(item, "jaxpr", item), "eqns"):
                yield item


def _dot_general(equation: Any) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    depth = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
    return int(2 * depth * math.prod(equation.outvars[0].aval.shape))


def _convolution(equation: Any) -> int:
    params, kernel = equation.params, equation.invars[1].aval.shape
    outputs = kernel[params["dimension_numbers"].rhs_spec[0]]
    products = math.prod(equation.outvars[0].aval.shape) * (math.prod(kernel) // outputs)
    # A transposed convolution spreads its input with zeros, which need not be multiplied.
    return int(2 * products // math.prod(params["lhs_dilation"]))


_FORMULAS = {"dot_general": _dot_general, "conv_general_dilated": _convolution}


def _shape(atom: Any) -> tuple[int, ...]:
    shape: tuple[int, ...] = atom.aval.shape
    return shape


def _bytes(atom: Any) -> int:
    return int(math.prod(_shape(atom)) * atom.aval.dtype.itemsize)
