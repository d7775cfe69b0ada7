"""Derives the inputs of a model in a Python file from its syntax."""

import ast
import re
from collections.abc import Iterator, Mapping

import attrs

from openxla.benchmark.user_models.python_files.candidates import Candidate, Definitions

UNKNOWN = "TYPE[SIZES]"
# Layers that keep the shape and type of their input.
_SAME = re.compile(r"torch\.nn\.(Identity|Dropout\d?d?|ReLU6?|GELU|SiLU|Tanh|Sigmoid|Softplus)")
_SPATIAL = (("LENGTH",), ("HEIGHT", "WIDTH"), ("DEPTH", "HEIGHT", "WIDTH"))
# A shape annotation of jaxtyping, e.g. `Float[Tensor, "batch 16"]`.
_JAXTYPING = re.compile(r"(?:\w+\.)*Float(?:32)?\[[^,]+, *['\"]([\w ]+)['\"]\]")
_DEPTH = 6


@attrs.frozen
class Spec:
    """The type and sizes of an input; `str` gives the text of `--input`.

    Attributes:
      data_type: e.g. `f32`.
      sizes: numbers, `batch`, and upper-case names of sizes that the user chooses.
      below: limit of the values; None for no limit.
    """

    data_type: str
    sizes: tuple[str, ...]
    below: int | None = None

    def __str__(self) -> str:
        limit = "" if self.below is None else f"<{self.below}"
        return f"{self.data_type}[{','.join(self.sizes)}]{limit}"

    @property
    def open_sizes(self) -> list[str]:
        """The sizes that the user chooses."""
        return [size for size in self.sizes if size.isupper()]


@attrs.frozen
class Argument:
    """A required argument; `str` gives the text of `--input`, with `UNKNOWN` for no `spec`."""

    name: str | None
    spec: Spec | None

    def __str__(self) -> str:
        return f"{f'{self.name}=' if self.name else ''}{self.spec or UNKNOWN}"


@attrs.frozen(kw_only=True)
class Expected:
    """The arguments of a model.

    Attributes:
      signature: as in its definition, e.g. `x, mask=None`.
      inputs: the arguments that are required; all have names if one is keyword-only.
    """

    signature: str
    inputs: tuple[Argument, ...]


def expected(definitions: Definitions, candidate: Candidate) -> Expected | None:
    """Returns the inputs of a candidate; None if its definition is not in the file."""
    if candidate.module is None:
        if candidate.made is None:
            return None
        needed = _of_layer(definitions, candidate.made, definitions.integers(), _DEPTH)
        return Expected(signature="", inputs=(Argument(None, needed),)) if needed else None
    forward = definitions.forward(candidate.module)
    if forward is None:
        return None
    numbers = _numbers(definitions, candidate.module, candidate.made, definitions.integers())
    inputs = _of_class(definitions, candidate.module, numbers, _DEPTH)
    # If one argument is keyword-only, all inputs need a name.
    is_named = any(default is None for default in forward.args.kw_defaults)
    arguments = (Argument(name if is_named else None, spec) for name, spec in inputs.items())
    return Expected(signature=_signature(forward), inputs=tuple(arguments))


def _of_class(
    definitions: Definitions, module: ast.ClassDef, numbers: Mapping[str, int], depth: int
) -> dict[str, Spec | None]:
    """Returns each required argument of a module; None if its type and sizes are unknown."""
    forward = definitions.forward(module)
    if forward is None:
        return {}
    layers = dict(_layers(definitions, module))
    arguments = [*forward.args.posonlyargs, *forward.args.args][1:]
    required = arguments[: len(arguments) - len(forward.args.defaults)]
    keywords = zip(forward.args.kwonlyargs, forward.args.kw_defaults, strict=True)
    required += [argument for argument, default in keywords if default is None]
    specs = {}
    for argument in required:
        layer = layers.get(_first_use(forward, argument.arg) or "")
        specs[argument.arg] = _annotated(argument) or (
            _of_layer(definitions, layer, numbers, depth - 1) if layer else None
        )
    return specs


def _of_layer(
    definitions: Definitions, call: ast.Call, numbers: Mapping[str, int], depth: int
) -> Spec | None:
    """Returns the first argument of a layer; None if unknown."""
    name = definitions.whole_name(call.func)
    if depth == 0 or any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    if name in definitions.classes:
        module = definitions.classes[name]
        inner = _numbers(definitions, module, call, numbers)
        specs = list(_of_class(definitions, module, inner, depth - 1).values())
        return specs[0] if len(specs) == 1 else None
    if name == "torch.nn.Sequential":
        layers = (a for a in call.args if isinstance(a, ast.Call))
        first = next(
            (a for a in layers if not _SAME.fullmatch(definitions.whole_name(a.func))), None
        )
        return _of_layer(definitions, first, numbers, depth - 1) if first else None
    library, _, kind = name.rpartition(".")
    if library not in ("torch.nn", "flax.nnx"):
        return None
    size = _size_of(call, numbers)
    if size is None:
        return None
    if kind in ("Linear", "LayerNorm", "RMSNorm", "BatchNorm1d"):
        return Spec("f32", ("batch", f"{size}"))
    if library == "torch.nn" and kind == "Embedding":
        return Spec("i64", ("batch", "LENGTH"), below=size)
    if match := re.fullmatch(r"(?:Conv|ConvTranspose|BatchNorm)([123])d", kind):
        return Spec("f32", ("batch", f"{size}", *_SPATIAL[int(match[1]) - 1]))
    if kind in ("LSTM", "GRU", "RNN") and library == "torch.nn":
        first = {k.arg: getattr(k.value, "value", None) for k in call.keywords}.get("batch_first")
        sizes = ("batch", "LENGTH") if first is True else ("LENGTH", "batch")
        return Spec("f32", (*sizes, f"{size}"))
    return None


def _size_of(call: ast.Call, numbers: Mapping[str, int]) -> int | None:
    names = ("in_features", "in_channels", "num_embeddings", "input_size", "num_features")
    given = [*call.args[:1], *(k.value for k in call.keywords if k.arg in names)]
    return _number(given[0], numbers) if given else None


def _numbers(
    definitions: Definitions,
    module: ast.ClassDef,
    call: ast.Call | None,
    outside: Mapping[str, int],
) -> dict[str, int]:
    """Returns the numbers assigned to names in a module's methods.

    Args:
      definitions: definitions of the file.
      module: class whose methods are read.
      call: call that makes the module; None without arguments.
      outside: values of names at the call.
    """
    numbers = definitions.integers()
    made = definitions.method(module, "__init__")
    if made is None:
        return numbers
    arguments = [*made.args.posonlyargs, *made.args.args]
    defaults = made.args.defaults
    values: dict[str, ast.expr] = {
        a.arg: value
        for a, value in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    }
    values |= {
        a.arg: value
        for a, value in zip(made.args.kwonlyargs, made.args.kw_defaults, strict=True)
        if value is not None
    }
    for argument in [*arguments, *made.args.kwonlyargs]:
        numbers.pop(argument.arg, None)
    numbers |= _known(values, numbers)
    if call is not None:
        given = {a.arg: value for a, value in zip(arguments[1:], call.args, strict=False)}
        given |= {k.arg: k.value for k in call.keywords if k.arg}
        for name in given:
            numbers.pop(name, None)
        numbers |= _known(given, outside)
    attributes = {
        ast.unparse(node.targets[0]): node.value
        for node in made.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)
    }
    return numbers | _known(attributes, numbers)


def _known(values: Mapping[str, ast.expr], numbers: Mapping[str, int]) -> dict[str, int]:
    known = {name: _number(value, numbers) for name, value in values.items()}
    return {name: value for name, value in known.items() if value is not None}


def _number(node: ast.expr, numbers: Mapping[str, int]) -> int | None:
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Name | ast.Attribute):
        return numbers.get(ast.unparse(node))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add | ast.Sub):
        left, right = _number(node.left, numbers), _number(node.right, numbers)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Mult):
            return left * right
        return left + right if isinstance(node.op, ast.Add) else left - right
    return None


def _layers(definitions: Definitions, module: ast.ClassDef) -> Iterator[tuple[str, ast.Call]]:
    for method in filter(None, (definitions.method(module, n) for n in ("__init__", "setup"))):
        for node in ast.walk(method):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                        yield target.attr, node.value


def _first_use(forward: ast.FunctionDef, argument: str) -> str | None:
    """Returns the first layer applied to an argument; None if something else comes first."""
    uses = [n for n in ast.walk(forward) if isinstance(n, ast.Name) and n.id == argument]
    loads = [n for n in uses if isinstance(n.ctx, ast.Load)]
    if not loads:
        return None
    first = min(loads, key=lambda n: (n.lineno, n.col_offset))
    if any(n.lineno < first.lineno for n in uses if isinstance(n.ctx, ast.Store)):
        return None
    for node in ast.walk(forward):
        if isinstance(node, ast.Call) and node.args and node.args[0] is first:
            layer = node.func
            if isinstance(layer, ast.Attribute) and ast.unparse(layer.value) == "self":
                return layer.attr
    return None


def _annotated(argument: ast.arg) -> Spec | None:
    if argument.annotation is None:
        return None
    match = _JAXTYPING.fullmatch(ast.unparse(argument.annotation))
    if match is None:
        return None
    sizes = [word if word.isdecimal() else word.upper() for word in match[1].split()]
    return Spec("f32", tuple("batch" if size in ("B", "BATCH") else size for size in sizes))


def _signature(forward: ast.FunctionDef) -> str:
    return re.sub(r"^self(, )?", "", ast.unparse(forward.args))
