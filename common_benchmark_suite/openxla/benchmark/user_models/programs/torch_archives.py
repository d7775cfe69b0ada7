"""Archives of PyTorch, read before it loads them: inputs, and code with side effects.

TorchScript: an archive is a zip: weights, `data.pkl` with the module's attributes, `constants.pkl`,
and below `code/` the source of TorchScript, whose syntax is a part of Python's. Only that source is
parsed here. Nothing is executed or unpickled; only names are read from pickles. A TorchScript
interpreter has no `import`, `open` or `exec`. It runs registered operators, and some of these read
or write files. An archive whose source calls one of them, an operator of another library, or an
object of a C++ class, holds code in the sense of `--allow-code`.

`.pt2`: `torch.export.load` runs code of a file in three ways: it unpickles constants and sample
inputs, it evaluates symbolic expressions with sympy, which calls `eval`, and it looks up operators
by name below `torch`, where `torch.os.system` is a name, too. Archives are checked against what
`torch.export.save` writes: expressions of a small grammar, and operators of PyTorch.
"""

import ast
import json
import pickletools
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.programs.signature import NamedInputs

_MOST_SOURCE_BYTES = 2**26
# Pickled number at the start of files from before PyTorch used archives.
_OLD_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
_MOST_PICKLE_BYTES = 2**26
BUNDLED = "get_all_bundled_inputs"
# Operators that read, write or load files.
_FILES = frozenset({"from_file", "save", "load", "load_library", "import_module"})
# Namespaces below `ops` whose operators only compute.
_NAMESPACES = frozenset(
    {"aten", "prim", "prims", "quantized", "torchvision", "mkldnn", "_quantized"}
)
# C++ classes that only hold packed weights.
_CLASSES = re.compile(r"__torch__\.torch\.classes\.(?!(quantized|xnnpack|mkldnn)\.)[\w.]+")
_DOTS_OF_A_CLASS = 3
# Names in a pickle of `torch.save` that only holds weights.
_PLAIN = re.compile(
    r"torch(\._utils|\.storage|\.nn\.parameter|\.serialization)? \w+|collections (OrderedDict"
    r"|defaultdict)|numpy(\.\w+)* \w+|_codecs encode|builtins (dict|set|list|tuple|bytearray)"
    r"|__builtin__ (dict|set|list|tuple|bytearray)|argparse Namespace|pathlib \w+|datetime \w+"
)

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
# Names of operators: a registered library's, arithmetic on sizes, and mathematics.
_OPERATORS = re.compile(
    r"torch\.ops\.\w+\.\w+(\.\w+)?|torch\._?sym_\w+|math\.\w+|#.*"
    r"|_operator\.(getitem|add|sub|mul|truediv|floordiv|mod|pow|neg|pos|abs|index|eq|ne|lt|le|gt|ge"
    r"|and_|or_|not_|xor|lshift|rshift|invert)"
)
# PyTorch operators that read, write or load files.
_OF_FILES = re.compile(r"torch\.ops\.(\w+\.)?(from_file|save|load|load_library|import_module)\b.*")


@attrs.frozen(kw_only=True)
class TorchScriptFile:
    """The outline of an archive.

    Attributes:
      takes: inputs of `forward`.
      code: the first code that can have side effects; None without any.
    """

    takes: NamedInputs
    code: str | None


def is_torchscript(path: Path) -> bool:
    """Returns whether a file is a TorchScript archive, by the names of its entries."""
    names = {name.partition("/")[2] for name in _names(path)}
    return "constants.pkl" in names and any(name.startswith("code/") for name in names)


def refuse_code(where: str, code: str | None, *, allowed: bool) -> None:
    """Raises UserModelError if an archive's code can have side effects, unless allowed."""
    if code is not None and not allowed:
        raise UserModelError(
            f"{where} contains {code}, which can read or write files; pass --allow-code if you "
            "trust it"
        )


def is_torch_export(path: Path) -> bool:
    """Returns whether a file was written by `torch.export.save`, whatever its name."""
    names = {name.partition("/")[2] or name for name in _names(path)}
    return bool(names & {"archive_format", "serialized_exported_program.json"})


def read_torchscript(path: Path) -> TorchScriptFile:
    """Returns the outline of an archive.

    Raises:
      UserModelError: the archive is incomplete, or `forward` takes unsupported inputs.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len({name.casefold() for name in names}) < len(names):
                raise UserModelError(
                    f"{path} is not a TorchScript archive: two entries have the same name"
                )
            sources = [name for name in names if "/code/" in name and name.endswith(".py")]
            if sum(archive.getinfo(name).file_size for name in sources) > _MOST_SOURCE_BYTES:
                raise UserModelError(f"{path} has more than {_MOST_SOURCE_BYTES} bytes of source")
            trees = {name: ast.parse(_as_python(archive.read(name))) for name in sources}
            pickles = [name for name in names if name.endswith(("/data.pkl", "/constants.pkl"))]
            held = {name: list(_globals(_read(archive, name))) for name in pickles}
            shape = _shape(archive, names)
        network = next(
            (names[0] for name, names in held.items() if "/data.pkl" in name and names), ""
        )
        network = _as_python(network.encode()).decode().replace(" ", ".")
        takes, code = _takes(path.name, trees, network, shape), _code_in(trees, held)
    except UserModelError:
        raise
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError, EOFError) as error:
        raise UserModelError(f"{path} is not a complete TorchScript archive: {error}") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserModelError(f"{path} has source that is not TorchScript: {error}") from error
    return TorchScriptFile(takes=takes, code=code)


def pickled_objects(path: Path) -> list[str] | None:
    """Returns the classes in a `torch.save` file that are not weights; None for other files.

    The pickle's instructions are read, not executed.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                name = next(n for n in archive.namelist() if n.endswith("data.pkl"))
                content = _read(archive, name)
        else:
            with path.open("rb") as file:
                content = file.read(_MOST_PICKLE_BYTES)
            if not content.startswith(b"\x80"):
                return None
            # Older files hold a magic number, a protocol and sizes before the object.
            for _ in range(3 if content.startswith(_OLD_MAGIC) else 0):
                content = content[_end_of_pickle(content) :]
        names = dict.fromkeys(_globals(content))
    except (StopIteration, OSError, ValueError, zipfile.BadZipFile, RuntimeError, IndexError):
        return None
    return [name.replace(" ", ".") for name in names if not _PLAIN.fullmatch(name)]


def _as_python(source: bytes) -> bytes:
    """Replaces type names that Python does not accept, e.g. `<string>.Net`."""
    return re.sub(rb"<(\w+)>", rb"_\1_", source)


def _names(path: Path) -> Sequence[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError):
        return ()


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > _MOST_PICKLE_BYTES:
        raise ValueError(f"{name} is larger than {_MOST_PICKLE_BYTES} bytes")
    return archive.read(name)


def _end_of_pickle(content: bytes) -> int:
    *_, (_, _, place) = pickletools.genops(content)
    return (place or 0) + 1


def _globals(content: bytes) -> Iterator[str]:
    """Yields the names that a pickle looks up, as `module name`."""
    texts: list[str] = []
    memo: dict[int, str] = {}
    last: str | None = None
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name == "GLOBAL":
            yield str(argument)
        elif opcode.name == "STACK_GLOBAL":
            yield " ".join(texts[-2:])
        elif "PUT" in opcode.name and last is not None and isinstance(argument, int):
            memo[argument] = last
        elif opcode.name == "MEMOIZE" and last is not None:
            memo[len(memo)] = last
        last = None
        if isinstance(argument, str) and "UNICODE" in opcode.name:
            last = argument
        elif "GET" in opcode.name and argument in memo:
            last = memo[argument]
        if last is not None:
            texts = [*texts[-1:], last]


def _shape(archive: zipfile.ZipFile, names: Sequence[str]) -> tuple[int, ...] | None:
    """Returns the input sizes that an exporter recorded; None without any."""
    entry = next((name for name in names if name.endswith("/extra/config.txt")), None)
    if entry is None or archive.getinfo(entry).file_size > _MOST_SOURCE_BYTES:
        return None
    try:
        shape = json.loads(archive.read(entry)).get("shape")
    except (ValueError, AttributeError):
        return None
    is_shape = isinstance(shape, list) and all(isinstance(n, int) and n > 0 for n in shape)
    return tuple(shape) if is_shape and shape else None


def _takes(
    where: str, trees: dict[str, ast.Module], network: str, shape: tuple[int, ...] | None
) -> NamedInputs:
    """Returns the inputs of the module's class."""
    forward: ast.FunctionDef | None = None
    methods: set[str] = set()
    for name, tree in trees.items():
        entry = _as_python(name.partition("/code/")[2].encode()).decode()
        module = entry.removesuffix(".py").replace("/", ".")
        for item in tree.body:
            if isinstance(item, ast.ClassDef) and f"{module}.{item.name}" == network:
                functions = [part for part in item.body if isinstance(part, ast.FunctionDef)]
                methods = {function.name for function in functions}
                forward = next((f for f in functions if f.name == "forward"), None)
    if forward is None:
        raise UserModelError(f"{where}: {network or 'the module'} has no method `forward`")
    arguments = forward.args.args[1:]
    required = len(arguments) - len(forward.args.defaults)
    tensors: list[str] = []
    for place, argument in enumerate(arguments):
        kind = ast.unparse(argument.annotation) if argument.annotation else "Tensor"
        if kind not in ("Tensor", "Optional[Tensor]"):
            if place < required:
                raise UserModelError(
                    f"{where}: input {argument.arg!r} of `forward` is a {kind}, but only tensors "
                    "are supported; save a module that takes tensors"
                )
            break
        tensors.append(argument.arg)
    return NamedInputs(
        where=where,
        names=tuple(tensors),
        required=min(required, len(tensors)),
        shape=shape if required == 1 else None,
        are_inside=BUNDLED in methods,
    )


def _code_in(trees: dict[str, ast.Module], held: dict[str, list[str]]) -> str | None:
    for name, names in held.items():
        for token in names:
            if _CLASSES.fullmatch(token.replace(" ", ".")):
                return f"an object of the C++ class {token.replace(' ', '.')} ({name})"
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if code := _code_at(node):
                return f"{code} ({name})"
        # A namespace bound to another name cannot be followed.
        bases = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in ("torch", "ops") and id(node) not in bases:
                return f"another name of `{node.id}` ({name})"
    return None


def _code_at(node: ast.AST) -> str | None:
    if isinstance(node, ast.Attribute):
        text = ast.unparse(node).removeprefix("torch.ops.")
        base, _, name = ast.unparse(node).removeprefix("torch.").rpartition(".")
        if base == "ops" and name not in _NAMESPACES:
            return f"an operator from another library, {text}"
        if base == "" and name == "classes":
            return "an object of a C++ class"
        if _CLASSES.fullmatch(text) and text.count(".") > _DOTS_OF_A_CLASS:
            return f"an object of the C++ class {text}"
    # A tensor's method is an operator, too: `x.save(path)`.
    if isinstance(node, ast.Call):
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in _FILES:
            return f"a call to {ast.unparse(called)}"
        if isinstance(called, ast.Name) and called.id == "getattr" and len(node.args) > 1:
            base, attribute = map(ast.unparse, node.args[:2])
            if base.partition(".")[0] in ("torch", "ops") or attribute.strip("'\"") in _FILES:
                return f"the call {ast.unparse(node)}"
    return None


def reason_in(error: BaseException) -> str:
    """Returns the reason in an error of TorchScript's interpreter, whose text is a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if re.match(r"[\w.:]*(Error|Exception|Exit)\b.*: ", line)]
    return said[-1] if said else (lines[0] if lines else type(error).__name__)


class NotAnArchiveError(ValueError):
    """The file is not a zip archive that can be checked."""


def code_in_export(path: Path) -> str | None:
    """Returns the first entry or operator that could run code when loaded; None without one.

    Raises:
      NotAnArchiveError: the archive is incomplete, or its entries are ambiguous.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len({name.casefold() for name in names}) < len(names):
                raise NotAnArchiveError("two entries have the same name")
            for name in names:
                # The first part is the name of the archive.
                folded = name.casefold()  # PyTorch finds entries in any case
                parts = folded.split("/")[1:] or [folded]
                if any(part.startswith(_OBJECTS) for part in parts):
                    return f"a pickled object ({name})"
                if "aotinductor" in parts:
                    return f"compiled code ({name})"
                # PyTorch reads everything in `models` as a program.
                is_read = (parts[0] == "models" and parts[-1]) or folded.endswith(".json")
                if is_read and (code := _code_in_json(archive.read(name))):
                    return f"{code} ({name})"
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
