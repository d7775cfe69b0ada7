"""Outline of a Python file from its syntax alone; nothing is executed."""

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from openxla.benchmark.user_models.model_options import UserModelError

_MOST_BYTES = 2**22
_MOST_FILES = 2000
# Folders of installed packages, which do not belong to each other.
INSTALLED = frozenset({"site-packages", "dist-packages"})


@attrs.frozen(kw_only=True)
class Outline:
    """The outline of a file.

    Attributes:
      tree: its syntax tree.
      names: names bound at the top level, in order.
      modules: packages and modules among them, with full names.
      is_open: whether it also binds unknown names (`from x import *`).
      imports: top-level packages that it imports, anywhere.
      constants: top-level names set to strings.
      has_loss: whether it compiles a Keras model with a loss.
      has_interface: whether an object in it makes its own inputs, like an `InferenceModel`.
    """

    tree: ast.Module = attrs.field(repr=False)
    names: tuple[str, ...]
    modules: Mapping[str, str]
    is_open: bool
    imports: frozenset[str]
    constants: Mapping[str, str]
    has_interface: bool
    has_loss: bool


def outline(file: Path) -> Outline:
    """Returns the outline of a file.

    Raises:
      UserModelError: it cannot be read, or is not Python.
    """
    tree = _tree(file)
    names: list[str] = []
    modules: dict[str, str] = {}
    constants: dict[str, str] = {}
    is_open = False
    for node in top(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            aliases = [alias.asname or alias.name.partition(".")[0] for alias in node.names]
            is_open |= "*" in aliases
            names += aliases
            if isinstance(node, ast.Import):
                for alias in node.names:
                    whole = alias.name if alias.asname else alias.name.partition(".")[0]
                    modules[alias.asname or whole] = whole
        else:
            parts = (n for n in ast.walk(node) if isinstance(n, ast.Name))
            bound = [n.id for n in parts if isinstance(n.ctx, ast.Store)]
            names += bound
            value = getattr(node, "value", None)
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                constants |= dict.fromkeys(bound, value.value)
    return Outline(
        tree=tree,
        names=tuple(dict.fromkeys(names)),
        modules=modules,
        is_open=is_open,
        imports=frozenset(name.partition(".")[0] for name in _imported(tree) if name),
        constants=constants,
        has_interface=any(
            getattr(node, "name", None) == "generate_default_inputs"
            or getattr(node, "attr", getattr(node, "id", None)) == "InferenceModel"
            for node in ast.walk(tree)
        ),
        has_loss=any(map(_compiles_loss, ast.walk(tree))),
    )


def _compiles_loss(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "compile"
        and (len(node.args) > 1 or any(keyword.arg == "loss" for keyword in node.keywords))
    )


def dotted_name(file: Path) -> str:
    """Returns the name of a file within its package; empty for a file that runs as a script.

    A file is part of a package if it has relative imports, or imports its own package by name.
    Folders without `__init__.py` count as packages up to the level that relative imports reach.

    Raises:
      UserModelError: the file cannot be read, or one of its folders cannot be a package.
    """
    tree = _tree(file)
    depth = 0
    while (file.parents[depth] / "__init__.py").is_file() and depth < len(file.parents) - 1:
        depth += 1
    levels = [node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    absolute = {name.partition(".")[0] for name in _imported(tree)}
    if not any(levels) and not (depth and file.parents[depth - 1].name in absolute):
        return ""
    depth = min(max(depth, *levels, 0), len(file.parents) - 1)
    folders = [file.parents[i].name for i in reversed(range(depth))]
    if wrong := [name for name in folders if "." in name]:
        raise UserModelError(
            f"{file} has relative imports, but its folder {wrong[0]!r} cannot be a package: rename "
            "it so that it contains no dot"
        )
    if file.name == "__init__.py":
        return ".".join(folders)
    return ".".join([*folders, re.sub(r"\W", "_", file.stem)])


def source_digest(file: Path, root: Path, package: str) -> str:
    """Returns the sha256 of a file and of the neighbouring modules that it imports, transitively.

    This way, a changed layer in a separate module gives another model.

    Args:
      file: the user's file.
      root: the folder in which its own modules are found.
      package: top-level package of the file; empty for a file without a package. It only matters
        in a folder of installed packages: in other folders, all modules are the file's own.
    """
    files = own_files(file, root, package)
    digests = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    lines = sorted(f"{path.relative_to(root)} {digest}" for path, digest in digests.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def own_files(file: Path, root: Path, package: str) -> Sequence[Path]:
    """Returns a file and the modules in its folder that it imports, see `source_digest`."""
    seen: dict[Path, None] = {}
    left = [file]
    while left and len(seen) < _MOST_FILES:
        path = left.pop()
        if path not in seen:
            seen[path] = None
            left += [own for own in _own_imports(path, root, package) if own not in seen]
    return list(seen)


def _own_imports(path: Path, root: Path, package: str) -> Iterator[Path]:
    try:
        tree = _tree(path)
    except UserModelError:
        return  # syntax errors are reported when the file is imported
    inside = path.parent.relative_to(root).parts
    for name in _imported(tree, inside):
        parts = name.split(".")
        if package and parts[0] != package and not INSTALLED.isdisjoint(root.parts):
            continue
        for count in range(1, len(parts) + 1):
            place = root.joinpath(*parts[:count])
            yield from (
                own for own in (place.with_suffix(".py"), place / "__init__.py") if own.is_file()
            )


def _imported(tree: ast.AST, inside: Sequence[str] = ()) -> Iterator[str]:
    """Yields the dotted names of imported modules; relative ones are resolved from the root."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = inside[: len(inside) - node.level + 1] if node.level else ()
            stem = ".".join(filter(None, (*above, node.module)))
            if node.level and not inside:
                continue
            yield stem
            yield from (".".join(filter(None, (stem, alias.name))) for alias in node.names)


def top(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements that an import runs, at the top level and in its branches."""
    for node in body:
        if isinstance(node, ast.If) and is_left_out(node):
            yield from top(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from top(getattr(node, part, []))
            for handler in getattr(node, "handlers", ()):
                yield from top(handler.body)
        else:
            yield node


def is_left_out(node: ast.If) -> bool:
    """Returns whether an import skips the branch, e.g. `if __name__ == "__main__":`."""
    names = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
    attributes = {n.attr for n in ast.walk(node.test) if isinstance(n, ast.Attribute)}
    texts = {n.value for n in ast.walk(node.test) if isinstance(n, ast.Constant)}
    is_positive = not any(isinstance(n, ast.Not | ast.NotEq) for n in ast.walk(node.test))
    is_script = "__name__" in names and "__main__" in texts
    return is_positive and (is_script or "TYPE_CHECKING" in names | attributes)


def _tree(file: Path) -> ast.Module:
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise UserModelError(f"{file} is larger than {_MOST_BYTES} bytes")
        return ast.parse(file.read_bytes(), filename=str(file))
    except SyntaxError as error:
        is_of_notebook = (error.text or "").lstrip().startswith(("%", "!"))
        way_out = "; remove this notebook command" if is_of_notebook else ""
        place = f"{file}:{error.lineno}"
        raise UserModelError(f"{place}: invalid Python: {error.msg}{way_out}") from error
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise UserModelError(f"{file} cannot be read: {error}") from error
