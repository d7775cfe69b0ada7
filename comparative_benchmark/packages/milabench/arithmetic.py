"""Arithmetic on numbers, for `expr(...)`: milabench has Python evaluate it, and here nothing is."""

import ast
import operator
from collections.abc import Callable, Mapping

# Long enough for any number of CPUs, and short enough to be parsed in no time.
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
    """An `argv` cannot be a command line."""


def value_of(text: str) -> float:
    """Returns the value of an expression of numbers, `+ - * / // %`, min, max, int, round and abs.

    Raises:
      ArgumentsError: it is anything else, or has no value.
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
