"""Command-line arguments of a script from milabench's `argv`, with placeholders filled in."""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Long enough for any CPU count, and short enough to parse quickly.
_LONGEST = 200
_OPERATORS: Mapping[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "int": int,
    "round": round,
    "abs": abs,
}


class ArgumentsError(ValueError):
    """An `argv` cannot be converted to a command line."""


def value_of(text: str) -> float:
    """Returns the value of an arithmetic expression.

    It may use numbers, `+ - * / // %`, min, max, int, round and abs.

    Raises:
      ArgumentsError: the expression contains anything else, or has no value.
    """
    try:
        if len(text) > _LONGEST:
            raise ArgumentsError(f"it is longer than {_LONGEST} characters")
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (ArithmeticError, SyntaxError, TypeError, ValueError, RecursionError) as error:
        raise ArgumentsError(f"expr({text}) is not arithmetic on numbers: {error}") from None


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=symbol, right=right) if type(symbol) in _OPERATORS:
            return _OPERATORS[type(symbol)](_value(left), _value(right))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(_value, args))
    raise ArgumentsError(f"unsupported expression {ast.unparse(node)!r}")


# `{milabench_data}` of milabench, and `${system.arch}`, `${..num_machines}` of OmegaConf.
_PLACEHOLDER = re.compile(r"\$\{\.*([a-z_][a-z_.]*)\}|\{([a-z_]+)\}")
# In milabench's sizer, `auto(8, 4)` contains the value that it would choose for a device, and
# `auto_batch(32)` the default, which a search for the best batch size multiplies. `expr(2 * 4)` is
# arithmetic. Each may follow `name=`.
_NAMED = re.compile(r"[\w.-]+=(auto|expr)")
_AUTO = re.compile(r"auto(_batch)?\(\s*([^,(){}]+?)\s*(?:,\s*[^,(){}]+?\s*)?\)")
_EXPRESSION = re.compile(r"expr\((.*)\)", re.DOTALL)


BATCH_FACTOR = "batch_factor"


class AnyNumber(dict[str, str]):
    """A mapping from every name to 1, to validate a text before the machine is known."""

    def get(self, *_: Any) -> str:
        """Returns 1."""
        return "1"


def assemble(argv: Any) -> list[str]:
    """Returns the arguments for an `argv`.

    A list is used unchanged. In a mapping, `true` makes a flag, `null` drops the option, a list is
    joined by commas, and `--` holds a list of positional arguments, which are placed last.

    Raises:
      ArgumentsError: a value is a mapping, or `false`, which is ambiguous.
    """
    if argv is None:
        return []
    if isinstance(argv, Sequence) and not isinstance(argv, str):
        return [_text("argv", item) for item in argv]
    if not isinstance(argv, Mapping):
        raise ArgumentsError("argv must be a mapping or a list")
    found: list[str] = []
    last: list[str] = []
    for name, value in argv.items():
        if name == "--":
            last = [_text(name, item) for item in (value if isinstance(value, list) else [value])]
        elif value is True:
            found.append(name)
        elif value is False:
            raise ArgumentsError(
                f"{name} is false; use `null` to drop an option, or `true` to make it a flag"
            )
        elif isinstance(value, list):
            found += [name, ",".join(_text(name, item) for item in value)]
        elif value is not None:
            found += [name, _text(name, value)]
    return found + last


def filled(value: Any, names: Mapping[str, str]) -> Any:
    """Replaces known `{name}` and `${name}` placeholders in strings at any depth.

    `auto({n_worker}, 8)` becomes the number of workers, `auto_batch(32)` becomes 32, and
    `expr({cpu_count} // 2)` half the number of CPUs.

    Raises:
      ArgumentsError: an expression is not arithmetic.
    """
    if isinstance(value, str):
        text = _PLACEHOLDER.sub(lambda match: names.get(match[1] or match[2], match[0]), value)
        name, equals, rest = text.rpartition("=") if _NAMED.match(text) else ("", "", text)
        return f"{name}{equals}{_computed(rest, int(names.get(BATCH_FACTOR, '1')))}"
    if isinstance(value, Mapping):
        # An argument without a value is a key: `batch_size=auto_batch(8): true`.
        return {filled(key, names): filled(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, names) for item in value]
    return value


def _computed(text: str, batch_factor: int) -> str:
    if automatic := _AUTO.fullmatch(text):
        found = automatic[2]
        return str(int(found) * batch_factor) if automatic[1] and found.isdecimal() else found
    expression = _EXPRESSION.fullmatch(text)
    return str(value_of(expression[1])) if expression else text


def _text(name: str, value: Any) -> str:
    if isinstance(value, Mapping | list):
        raise ArgumentsError(f"{name}: expected a string or a number, got {value!r}")
    return str(value)
