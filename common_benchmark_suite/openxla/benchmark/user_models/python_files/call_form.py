"""Call signatures of models: flattens arguments of any structure into arrays, and back.

Backends pass arrays by position. A `CallForm` keeps the rest of a call: names of keyword arguments,
the dictionaries, tuples and dataclasses around the arrays, and constants.
"""

import dataclasses
import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import numpy as np

from openxla.benchmark.user_models.model_options import UserModelError

_CONSTANTS = (bool, int, float, complex, enum.Enum, type(None))
_NO_NUMBERS = "OSUVmM"  # kinds of NumPy types that are not numbers


class _Array:
    """Placeholder for an array; a class, because copies of a class are identical to it."""


class Trees(Protocol):
    """A framework's library for nested structures."""

    def flatten(
        self, tree: Any, is_leaf: Callable[[Any], bool]
    ) -> tuple[list[tuple[Sequence[Any], Any]], Any]:
        """Returns the leaves, each with its path, and the structure."""

    def unflatten(self, leaves: list[Any], structure: Any) -> Any:
        """Returns the tree built from its leaves and structure."""

    def register(self, dataclass: type) -> None:
        """Registers a dataclass, so that its instances are nodes instead of leaves."""


@attrs.frozen(kw_only=True)
class CallForm:
    """The arguments of a call, without its arrays.

    Attributes:
      names: names of the arrays as in source code, e.g. `batch.mask` or `input_ids`.
    """

    names: tuple[str, ...]
    _leaves: tuple[Any, ...]
    _structure: Any
    _trees: Trees

    @property
    def is_plain(self) -> bool:
        """Whether the call consists of positional arrays alone."""
        plain = tuple(f"argument {place}" for place in range(len(self._leaves)))
        return self.names == plain

    def call(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """Calls a function with the arrays in place."""
        left = iter(arrays)
        leaves = [next(left) if leaf is _Array else leaf for leaf in self._leaves]
        args, keywords = self._trees.unflatten(leaves, self._structure)
        return function(*args, **keywords)


def split(
    example: Any, signature: inspect.Signature | None, trees: Trees
) -> tuple[CallForm, list[Any]]:
    """Returns the form of a call, and its arrays in order.

    A tuple or a list holds positional arguments, a mapping holds keyword arguments, and anything
    else is the only argument. A mapping is the only argument if the function has no such keywords.
    A mapping at the end of a tuple holds keywords if the function takes one argument less.

    Args:
      example: what `example_inputs()` returns.
      signature: signature of the callable; None if unknown.
      trees: the framework's library.

    Raises:
      UserModelError: a leaf is not an array of numbers, a number or None (the message names it), or
        the structure contains itself or no array.
    """
    _refuse_cycles(example, ())
    flat, structure = flatten(_arguments(example, signature), trees, _is_numbers)
    names = [_name(path) for path, _ in flat]
    leaves = [leaf for _, leaf in flat]
    # A call on numbers alone takes them as arrays.
    numbers = not any(map(_is_array, leaves))
    is_input = [_is_array(leaf) or (numbers and _is_number(leaf)) for leaf in leaves]
    for name, leaf, is_one in zip(names, leaves, is_input, strict=True):
        if not is_one and not isinstance(leaf, _CONSTANTS):
            raise UserModelError(_refusal(name, leaf))
    form = CallForm(
        names=tuple(name for name, is_one in zip(names, is_input, strict=True) if is_one),
        leaves=tuple(_Array if one else leaf for leaf, one in zip(leaves, is_input, strict=True)),
        structure=structure,
        trees=trees,
    )
    if not form.names:
        raise UserModelError("example_inputs() returns no array; return the model's arguments")
    return form, [leaf for leaf, is_one in zip(leaves, is_input, strict=True) if is_one]


def flatten(
    tree: Any, trees: Trees, is_leaf: Callable[[Any], bool] = lambda _: False
) -> tuple[list[tuple[Sequence[Any], Any]], Any]:
    """Returns leaves with paths, and the structure; dataclasses are nodes."""
    registered: set[type] = set()
    while True:
        flat, structure = trees.flatten(tree, is_leaf)
        classes = {type(leaf) for _, leaf in flat if dataclasses.is_dataclass(leaf)} - registered
        if not classes:
            return flat, structure
        for kind in classes:
            trees.register(kind)
        registered |= classes


def by_keyword(names: Sequence[str], trees: Trees) -> CallForm:
    """Returns the form of a call that takes arrays by keyword alone; `names` gives the order."""
    keywords = dict.fromkeys(names, 0.0)
    flat, structure = trees.flatten(((), keywords), _is_numbers)
    return CallForm(
        names=tuple(_name(path) for path, _ in flat),
        leaves=(_Array,) * len(names),
        structure=structure,
        trees=trees,
    )


def signature_of(function: Any) -> inspect.Signature | None:
    """Returns a function's signature; None if it is not available."""
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        return None


def _arguments(
    example: Any, signature: inspect.Signature | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        keywords = dict(example)
        named = all(isinstance(key, str) for key in keywords)
        if named and (_accepts(signature, (), keywords) or not _accepts(signature, (example,), {})):
            return (), keywords
        return (keywords,), {}
    if isinstance(example, list) and not _is_numbers(example):
        example = tuple(example)
    if not isinstance(example, tuple) or hasattr(example, "_fields"):
        return (example,), {}
    *first, last = example or (None,)
    if not isinstance(last, dict) or _accepts(signature, example, {}):
        return example, {}
    named = all(isinstance(key, str) for key in last) and _accepts(signature, first, last)
    return (tuple(first), last) if named else (example, {})


def _accepts(
    signature: inspect.Signature | None, args: Sequence[Any], keywords: Mapping[str, Any]
) -> bool:
    if signature is None:
        return True
    try:
        signature.bind(*args, **keywords)
    except TypeError:
        return False
    return True


def _refuse_cycles(value: Any, above: tuple[int, ...]) -> None:
    if id(value) in above:
        kind = type(value).__name__
        raise UserModelError(f"example_inputs() returns a {kind} that contains itself")
    inside: Sequence[Any] = ()
    if isinstance(value, Mapping):
        inside = list(value.values())
    elif isinstance(value, list | tuple):
        inside = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = [getattr(value, field.name) for field in dataclasses.fields(value)]
    for one in inside:
        _refuse_cycles(one, (*above, id(value)))


def _is_array(value: Any) -> bool:
    if _is_numbers(value):
        return True
    if not (hasattr(value, "__array__") or hasattr(value, "__array_interface__")):
        return False
    kind = getattr(getattr(value, "dtype", None), "kind", "f")
    return kind not in _NO_NUMBERS or getattr(value.dtype, "name", "") == "bfloat16"


def _is_numbers(value: Any) -> bool:
    """Returns whether a value is a (nested) list of numbers that NumPy accepts."""
    if not isinstance(value, list) or not value:
        return False
    return all(_is_number(item) or _is_numbers(item) for item in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | complex)


def _refusal(name: str, leaf: Any) -> str:
    where = f"example_inputs(): {name or 'the argument'}"
    if isinstance(leaf, str | bytes | np.str_ | np.bytes_):
        kind = "bytes" if isinstance(leaf, bytes) else "a string"
        return f"{where} is {kind}; make it a default of the model, or wrap the model"
    if isinstance(leaf, np.ndarray):
        return f"{where} is an array of {leaf.dtype}, not of numbers"
    return f"{where} is a {type(leaf).__name__}; use arrays, numbers, None, or a dict of these"


def _name(path: Sequence[Any]) -> str:
    """Returns a path below (args, keywords) as in source code."""
    steps = [_step(entry) for entry in path]
    is_keyword, steps = steps[:1] == [1], steps[1:]
    text = "" if is_keyword else "argument "
    for depth, step in enumerate(steps):
        if depth == 0:
            text += str(step)
        else:
            text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text


def _step(entry: Any) -> Any:
    for kind in ("idx", "key", "name"):
        if hasattr(entry, kind):
            return getattr(entry, kind)
    return entry
