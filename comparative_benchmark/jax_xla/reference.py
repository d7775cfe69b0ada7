"""Truth, reference and cost of a JAX model, from its plain runs and its jaxpr.

Plain runs may round as a recipe does, or move constants. Work is counted from the jaxpr, which is
traced, never run. XLA's own count (`cost_analysis`) is not used: it counts the body of a loop
once, and it adds elementwise operations as this framework happens to write them. For the tiny BERT
it is 9 % above this count; for the tiny ResNet, where XLA leaves out products with padding, it is
5 % below.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

from comparative_benchmark.backends.api import Array, UnsupportedError
from comparative_benchmark.backends.frameworks.jax_models import split, widened
from comparative_benchmark.backends.recipes.definition import Grid, Rounding, rounded
from openxla.benchmark.artifacts.workload_store import WorkloadCost
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.user_models.programs.program_model import rounded as moved_inputs

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
    total = _Count()
    for equation in jaxpr.eqns:
        if inner := list(bodies(equation.params)):
            _add_bodies(total, equation, inner)
            continue
        name = equation.primitive.name
        total.flops += _FORMULAS[name](equation) if name in _FORMULAS else 0
        for position, atom in enumerate(equation.invars):
            taken = position == 0 and name in _INDEXING
            total.read(atom, sum(map(_bytes, equation.outvars)) if taken else _bytes(atom))
    held = zip(jaxpr.constvars, getattr(program, "consts", ()))
    total.note_constants({id(array): total.reads.get(variable, 0) for variable, array in held})
    return total


def _add_bodies(total: _Count, equation: Any, inner: Sequence[Any]) -> None:
    """Adds the work of an equation that contains programs: a call, a loop, a branch."""
    name = equation.primitive.name
    if name == "while":
        raise ValueError("the number of iterations of a `while` loop depends on values")
    counts = [_count(body) for body in inner]
    if len({count.flops for count in counts}) > 1:
        raise ValueError(f"the bodies of `{name}` differ in cost")
    times = equation.params["length"] if name == "scan" else 1
    total.flops += times * counts[0].flops
    # The first operand of `cond` chooses the branch.
    operands = equation.invars[1:] if name == "cond" else equation.invars
    for body, count in zip(inner, counts, strict=True):
        total.note_constants(count.constants)
        variables = getattr(body, "jaxpr", body).invars
        if name == "scan" or list(map(_shape, variables)) == list(map(_shape, operands)):
            for atom, variable in zip(operands, variables, strict=True):
                total.read(atom, times * count.reads.get(variable, 0))
        elif count.flops:
            raise ValueError(f"cannot determine how many times `{name}` runs its body")
        else:  # the scalar function of a reduction or a scatter
            for atom in operands:
                total.read(atom, _bytes(atom))


def bodies(params: Mapping[str, Any]) -> Iterator[Any]:
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


# The output of these operations on a weight still counts as that weight.
SAME_VALUES = frozenset({"convert_element_type", "copy", "reshape", "squeeze", "transpose"})
# Their bodies are not called with the operands; a reduction's takes two numbers.
_LOOPS = frozenset({"scan", "while", "cond", "reduce", "reduce_window"})


def run_rounded(
    closed: Any, held: Sequence[bool], arguments: Sequence[Any], rounding: Rounding
) -> Any:
    """Returns the outputs of a traced program, computed operation by operation.

    Args:
      closed: the jaxpr with its constants, from `jax.make_jaxpr`.
      held: for each argument, whether it is a weight.
      arguments: in order.
      rounding: rounding of the factors of products with weights.

    Raises:
      UnsupportedError: a loop holds products.
    """
    return _Run(rounding).outputs(closed.jaxpr, closed.consts, held, arguments)


def run_moved(closed: Any, arguments: Sequence[Any], move: Callable[[Any], Any]) -> Any:
    """Returns the outputs of a traced program whose constants are replaced, op by op.

    Constants inside a loop are not replaced.

    Args:
      closed: the jaxpr with its constants, from `jax.make_jaxpr`.
      arguments: in order.
      move: returns the replacement of a constant.
    """
    held = [False] * len(arguments)
    return _Run(Rounding(), move).outputs(closed.jaxpr, closed.consts, held, arguments)


class _Run:
    def __init__(self, rounding: Rounding, move: Callable[[Any], Any] | None = None) -> None:
        self._rounding, self._move = rounding, move

    def outputs(
        self, program: Any, constants: Sequence[Any], held: Sequence[bool], given: Sequence[Any]
    ) -> list[Any]:
        if self._move is not None:
            constants = [self._move(value) for value in constants]
        values = dict(zip(program.constvars, constants, strict=True))
        values |= dict(zip(program.invars, given, strict=True))
        weights = {name for name, is_weight in zip(program.invars, held, strict=True) if is_weight}

        def read(name: Any) -> Any:
            if not isinstance(name, Literal):
                return values[name]
            # Newer tracers leave arrays where they are used.
            is_array = self._move is not None and np.ndim(name.val) > 0
            return self._move(name.val) if self._move is not None and is_array else name.val

        for equation in program.eqns:
            operands = [read(name) for name in equation.invars]
            are_weights = [
                not isinstance(name, Literal) and name in weights for name in equation.invars
            ]
            made = self._evaluate(equation, operands, are_weights)
            values |= dict(zip(equation.outvars, made, strict=True))
            if equation.primitive.name in SAME_VALUES and are_weights[0]:
                weights.update(equation.outvars)
        return [read(name) for name in program.outvars]

    def _evaluate(self, equation: Any, operands: list[Any], held: Sequence[bool]) -> Sequence[Any]:
        name, parameters = equation.primitive.name, equation.params
        inner = parameters.get("jaxpr") or parameters.get("call_jaxpr")
        if name not in _LOOPS and inner is not None:
            program, constants = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
            return self.outputs(program, constants, held, operands)
        if self._move is None and name in _LOOPS and "dot_general" in str(equation):
            raise UnsupportedError("a loop contains matrix products")
        if any(held):
            self._round_factors(equation, operands, held)
        bound = equation.primitive.get_bind_params(parameters)
        # Before JAX 0.10, functions were separate from the other parameters.
        functions, bound = bound if isinstance(bound, tuple) else ((), bound)
        with equation.ctx.manager:
            made = equation.primitive.bind(*functions, *operands, **bound)
        made = made if equation.primitive.multiple_results else [made]
        grid = self._rounding.outputs
        return made if grid is None else [_rounded(value, grid, None) for value in made]

    def _round_factors(self, equation: Any, operands: list[Any], held: Sequence[bool]) -> None:
        if equation.primitive.name == "dot_general":
            axes = equation.params["dimension_numbers"][0]
        elif equation.primitive.name == "conv_general_dilated" and self._rounding.convolutions:
            # Axes of batch, features and space in the inputs, and likewise in the kernel.
            numbers = equation.params["dimension_numbers"]
            axes = (numbers.lhs_spec[1:], numbers.rhs_spec[1:])
        else:
            return
        for place, is_weight in enumerate(held):
            grid = self._rounding.weights if is_weight else self._rounding.activations
            if grid is not None:
                operands[place] = _rounded(operands[place], grid, axes[place])


def _rounded(value: Any, grid: Grid, axes: Sequence[int] | None) -> Any:
    if not jax.numpy.issubdtype(value.dtype, jax.numpy.floating):
        return value
    wide = np.asarray(value, np.float32)
    axes = tuple(range(wide.ndim)) if axes is None else axes
    return jax.numpy.asarray(rounded(wide, grid, axes), value.dtype)


def compute(model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
    """Returns the outputs of the model in float64, and op by op in its own type, on the CPU.

    The float64 run takes the weights as the model holds them, so that for a 16-bit model only the
    computation differs, not the rounding of weights and inputs.
    """
    apply, params = split(model)
    # If a GPU is the default device, the model has put its weights there.
    cpu = jax.devices("cpu")[0]
    same_type = in_own_type(model, inputs)
    with jax.default_device(cpu), jax.enable_x64(True):
        wide_params, wide_inputs = widened(jax.device_put((params, tuple(inputs)), cpu))
        outputs = as_tuple(jax.jit(apply)(wide_params, *wide_inputs))
        truth = [np.asarray(value) for value in outputs]
    for value in truth:
        # The kind of bfloat16 is V.
        if "float" in value.dtype.name and value.dtype != np.float64:
            raise TypeError(
                f"the model computes in {value.dtype} instead of float64; define `params` and "
                "`apply(params, *inputs)` so that they follow the type of their arguments"
            )
    return truth, same_type


def in_own_type(model: Any, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of a run in the model's own type, op by op, on the CPU."""
    apply, params = split(model)
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu), jax.disable_jit():
        values = apply(*jax.device_put((params, *inputs), cpu))
        return [np.asarray(value) for value in as_tuple(values)]


def nearby(model: Any, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of a run, op by op, on weights and inputs that are off by a spacing.

    The weights are `params`, and the arrays that the model closes over.
    """
    apply, params = split(model)
    cpu = jax.devices("cpu")[0]
    moved: dict[int, tuple[Any, Any]] = {}

    def move(value: Any) -> Any:
        if not jax.numpy.issubdtype(value.dtype, jax.numpy.floating):
            return value
        # One array may be used in several places.
        if id(value) not in moved:
            (off,) = moved_inputs([np.asarray(value)], spacings=1.0, seed=len(moved))
            moved[id(value)] = value, jax.device_put(off, cpu)
        return moved[id(value)][1]

    with jax.default_device(cpu):
        params = jax.device_put(params, cpu)
        given = (jax.tree.map(move, params), *jax.device_put(moved_inputs(inputs), cpu))
        try:
            traced = jax.make_jaxpr(lambda *values: as_tuple(apply(*values)))(*given)
        except jax.errors.JAXTypeError:  # it looks at values: only its inputs are moved
            return in_own_type(model, moved_inputs(inputs))
        outputs = run_moved(traced, jax.tree.leaves(given), move)
        return [np.asarray(value) for value in outputs]


def quantised(model: Any, inputs: Sequence[Array], rounding: Rounding) -> list[Array]:
    """Returns the outputs of an op-by-op run on the CPU that rounds as a recipe does."""
    apply, params = split(model)
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        params, *values = jax.device_put((params, *inputs), cpu)
        traced = jax.make_jaxpr(lambda *given: as_tuple(apply(*given)))(params, *values)
        flat = jax.tree_util.tree_leaves_with_path(params)
        leaves = [leaf for _, leaf in flat]
        held = [jax.tree_util.keystr(path[-1:]) != f"['{rounding.spared}']" for path, _ in flat]
        held += [False] * len(values)
        outputs = run_rounded(traced, held, [*leaves, *values], rounding)
        return [np.asarray(value) for value in outputs]
