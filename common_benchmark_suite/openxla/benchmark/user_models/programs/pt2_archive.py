"""Finds code in a `.pt2` archive before PyTorch loads it.

`torch.export.load` runs code of a file in three ways: it unpickles constants and sample inputs, it
evaluates symbolic expressions with sympy, which calls `eval`, and it looks up operators by name
below `torch`, where `torch.os.system` is a name, too. Archives are checked against what
`torch.export.save` writes: expressions of a small grammar, and operators of PyTorch.
"""

import ast
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Prefixes of entries that are objects, not tensors.
_OBJECTS = ("custom_obj_", "opaque_obj_")
_LONGEST_EXPRESSION = 10_000
# Functions of sympy and torch.utils._sympy.functions that occur in sizes.
_FUNCTION_NAMES = """
Symbol Dummy Integer Rational Float Add Mul Pow Mod Min Max Abs floor ceiling sqrt Piecewise
ExprCondPair Tuple Equality Unequality Eq Ne Lt Le Gt Ge StrictLessThan LessThan StrictGreaterThan
GreaterThan And Or Not Xor ITE FloorDiv ModularIndexing Where PythonMod CMod CleanDiv CeilDiv
CeilToInt FloorToInt IntTrueDiv FloatTrueDiv FloatPow PowByNatural LShift RShift ToFloat TruncToInt
TruncToFloat RoundToInt RoundDecimal Identity IsNonOverlappingAndDenseIndicator
BitwiseFn_bitwise_and BitwiseFn_bitwise_or BitwiseFn_bitwise_xor OpaqueUnaryFn_sqrt
OpaqueUnaryFn_exp OpaqueUnaryFn_log OpaqueUnaryFn_log2 OpaqueUnaryFn_sin OpaqueUnaryFn_cos
OpaqueUnaryFn_tan OpaqueUnaryFn_tanh OpaqueUnaryFn_sinh OpaqueUnaryFn_cosh OpaqueUnaryFn_asin
OpaqueUnaryFn_acos OpaqueUnaryFn_atan
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_NAMES = frozenset(
    {"true", "false", "oo", "zoo", "nan", "int_oo", "Infinity", "NegativeInfinity", "pi", "E"}
)
_PLAIN_SYMBOL = re.compile(r"[a-z]+\d*")
_NODES = (
    *(ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.Tuple),
    *(ast.UnaryOp, ast.USub, ast.UAdd, ast.Not, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div),
    *(ast.FloorDiv, ast.Mod, ast.Pow, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt),
    ast.GtE,
)
# Names of operators: those of a registered library, arithmetic on sizes, and mathematics.
_OPERATORS = re.compile(
    r"torch\.ops\.\w+\.\w+(\.\w+)?|torch\._?sym_\w+|math\.\w+|#.*"
    r"|_operator\.(getitem|add|sub|mul|truediv|floordiv|mod|pow|neg|pos|abs|index|eq|ne|lt|le|gt|ge"
    r"|and_|or_|not_|xor|lshift|rshift|invert)"
)
# PyTorch operators that read, write or load files.
_OF_FILES = re.compile(r"torch\.ops\.(\w+\.)?(from_file|save|load|load_library|import_module)\b.*")


class NotAnArchiveError(ValueError):
    """The file is not a zip archive that can be checked."""


def code_in(path: Path) -> str | None:
    """Returns the first entry or operator that could run code when loaded; None without one.

    Raises:
      NotAnArchiveError: the archive is incomplete, or its entries are ambiguous.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len({name.casefold() for name in names}) < len(names):
                raise NotAnArchiveError("two entries have one name")
            for name in names:
                if name.rpartition("/")[2].startswith(_OBJECTS):
                    return f"a pickled object ({name})"
                if name.endswith(".json") and (found := _code_in_json(archive.read(name))):
                    return f"{found} ({name})"
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError) as error:
        raise NotAnArchiveError(str(error)) from error
    return None


def _code_in_json(content: bytes) -> str | None:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotAnArchiveError(f"invalid JSON: {error}") from error
    for item in _objects(document):
        expression, target = item.get("expr_str"), item.get("target")
        if expression is not None and not is_expression(expression):
            return f"an expression that is not symbolic: {str(expression)[:100]!r}"
        if target is not None and "inputs" in item and not is_operator(target):
            return f"an operator that is not PyTorch's: {str(target)[:100]!r}"
    return None


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    waiting = [document]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def is_operator(target: Any) -> bool:
    """Returns whether a node's target is an operator that runs no code from the file."""
    return (
        isinstance(target, str)
        and _OPERATORS.fullmatch(target) is not None
        and _OF_FILES.fullmatch(target) is None
    )


def is_expression(text: Any) -> bool:
    """Returns whether a text is a symbolic expression as written by `sympy.srepr` or `str`."""
    if not isinstance(text, str) or len(text) > _LONGEST_EXPRESSION:
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(_is_allowed(node) for node in ast.walk(tree)) and _calls_by_name(tree)


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        is_symbol = _PLAIN_SYMBOL.fullmatch(node.id) is not None
        return node.id in _FUNCTIONS or node.id in _NAMES or is_symbol
    if isinstance(node, ast.Constant):
        # The name of a symbol, a number, or an assumption such as positive=True.
        is_name = isinstance(node.value, str) and re.fullmatch(r"[\w.-]+", node.value) is not None
        return is_name or isinstance(node.value, int | float | bool | None)
    return isinstance(node, _NODES)


def _calls_by_name(tree: ast.AST) -> bool:
    """Returns whether only known functions are called."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return all(isinstance(call.func, ast.Name) and call.func.id in _FUNCTIONS for call in calls)
