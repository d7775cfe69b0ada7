"""Finds the callable in a Python file that makes its model, by syntax alone."""

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from openxla.benchmark.user_models.python_files.outline import Outline, is_left_out, top

# Names to look for first.
USUAL = ("create_model", "model", "make_model", "get_model", "build_model")
EXAMPLE_INPUTS, EXAMPLE_BATCH = "example_inputs", "example_batch"
# Names from scripts and other interfaces; in JAX, some of the latter are functions of the inputs.
_NEVER = {EXAMPLE_INPUTS, EXAMPLE_BATCH, "loss", "main", "init", "run", "setup"}
_PARTS = {"apply", "forward"}
_IS_MODULE = re.compile(
    r"(^|\.)(Module|Model|Layer|Sequential|InferenceModel|\w*LightningModule|\w*PreTrainedModel)$"
)
# A class with an unknown base is a model if it defines one of these, unless it is an autograd
# function.
_FORWARD = ("forward", "__call__", "call")
_NO_MODULE = re.compile(r"(Function|Dataset|Transform|Exception|Error|Enum|Optimizer|Callback)$")
_WORDS_OF_MODELS = {
    *("model", "models", "net", "network", "build", "make", "create", "module", "backbone"),
    *("encoder", "decoder", "classifier", "transformer"),
}
_OTHER_WORDS = {
    *("data", "dataset", "datasets", "loader", "loaders", "dataloader", "batch", "batches"),
    *("input", "inputs", "labels", "mask", "vocab", "tokenizer", "transform", "transforms"),
    *("optim", "optimizer", "optimiser", "scheduler", "loss", "criterion", "metric", "metrics"),
    *("args", "arguments", "parser", "config", "cfg", "device", "logger", "path", "seed"),
    *("trainer", "train", "eval", "evaluate", "test", "plot", "print", "parse", "load", "save"),
}
# Full names of library functions that return a model.
_MAKES_MODEL = re.compile(
    r"(torch\.nn\.(\w+\.)*[A-Z]\w*|torchvision\.models\..+|timm\.create_model"
    r"|torch\.(hub\.load|jit\.(load|script|trace))|(tensorflow\.)?keras\.(Sequential|Model)"
    r"|(tensorflow\.)?keras\.(layers|applications)\..+|tensorflow\.saved_model\.load"
    r"|flax\.nnx\.[A-Z]\w*|transformers\..+\.(from_pretrained|from_config)"
    r"|transformers\.\w+(Model|For[A-Z]\w*))"
)
_NOT_A_MODEL = re.compile(
    r"(Loss|Parameter|ParameterList|Optimizer|Rngs|Tokenizer\w*|Processor|Config)(\.\w+)?$"
)
# Functions that return the model they are given.
_WRAPPERS = ("torch.compile", "torch.nn.DataParallel", "torch.jit.script", "copy.deepcopy")
_METHODS = {
    *("eval", "train", "to", "cpu", "cuda", "float", "half", "double", "bfloat16"),
    *("requires_grad_", "share_memory", "apply"),
}
_TRAINS = {
    *("backward", "fit", "fit_generator", "train_on_batch", "apply_gradients"),
    *("value_and_grad", "apply_updates"),
}
_WEIGHTS = {"params", "parameters", "variables", "weights", "state", "theta", "self"}
_NO_INPUTS = _WEIGHTS | {"key", "rng", "rngs", "seed", "config", "cfg", "args"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@attrs.frozen(kw_only=True)
class Candidate:
    """A callable that may make a file's model, or an object that may be the model.

    Attributes:
      name: its name in the file.
      needs: its required arguments.
      is_sure: whether its definition shows that it is a module or returns one.
      module: class of the model in the file; None if defined elsewhere or unknown.
      made: the call that makes the model; None for a class.
    """

    name: str
    needs: tuple[str, ...]
    is_sure: bool
    module: ast.ClassDef | None
    made: ast.Call | None

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.needs)})" if self.needs else self.name


@attrs.frozen(kw_only=True)
class Script:
    """The behaviour of a file that runs as a script.

    Attributes:
      trains: first and last top-level line that trains a model; None if importing trains nothing.
      makes: lines that make a model at the top level or in `main()`.
      place: code that importing does not run and that makes the model; empty for the top level.
    """

    trains: tuple[int, int] | None
    makes: tuple[int, int] | None
    place: str

    def hint(self, name: str) -> str:
        """Returns a sentence that names the lines to move; empty without such lines."""
        moved = f"move {_lines(self.makes)}" if self.makes else "move the lines that create it"
        if self.trains:
            return (
                f"{name} trains a model in {_lines(self.trains)} whenever it is imported; {moved} "
                "into a function create_model() that returns the model, and the training below "
                '`if __name__ == "__main__":`'
            )
        if self.place and self.makes:
            return (
                f"{name} creates its model in {self.place}; {moved} into a function "
                "create_model() that returns the model"
            )
        return ""


class Definitions:
    """The definitions of a file, and the objects that they make."""

    def __init__(self, file: Outline, *, functions_are_models: bool) -> None:
        self._file = file
        # In JAX a function of the inputs is a model.
        self._functions_are_models = functions_are_models
        statements = list(top(file.tree.body))
        self._imports = dict(_imports(ast.walk(file.tree)))
        self.classes = {n.name: n for n in statements if isinstance(n, ast.ClassDef)}
        self._bases = {
            name: [ast.unparse(base) for base in node.bases] for name, node in self.classes.items()
        }
        self._extended = {base for bases in self._bases.values() for base in bases}
        self._functions = {n.name: n for n in statements if isinstance(n, Function)}
        self._values = dict(_assigned(statements))

    def candidates(self) -> list[Candidate]:
        """Returns all candidates, in the order of the file."""
        return self._candidates

    @functools.cached_property
    def _candidates(self) -> list[Candidate]:
        known: dict[str, Candidate | None] = {}
        for name in self._file.names:
            if name in self.classes:
                known[name] = self._class(self.classes[name])
            elif name in self._functions:
                known[name] = self._function(self._functions[name])
            elif name in self._values and (made := self._made(self._values[name], {})):
                module = self.classes.get(self.whole_name(made.func))
                known[name] = Candidate(name=name, needs=(), is_sure=True, module=module, made=made)
        return [candidate for candidate in known.values() if candidate]

    def candidate(self, name: str) -> Candidate | None:
        """Returns the candidate of that name; None if it is not one, or is defined elsewhere."""
        return next((candidate for candidate in self.candidates() if candidate.name == name), None)

    def unused(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Returns the candidates that no other candidate uses; used ones are parts of a model."""
        names = {candidate.name for candidate in candidates}
        used: set[str] = set()
        for name in names:
            body = self.classes.get(name) or self._functions.get(name) or self._values.get(name)
            parts = body.body if isinstance(body, ast.ClassDef) else filter(None, [body])
            used |= {n for part in parts for n in _loaded(part)} - {name}
        return [candidate for candidate in candidates if candidate.name not in used]

    @property
    def defined(self) -> set[str]:
        """Top-level names that the file itself defines."""
        return {*self.classes, *self._functions, *self._values}

    def of_weights(self) -> str:
        """Returns a function of weights and inputs, which needs its weights; empty without one."""
        functions = self._functions.values() if self._functions_are_models else ()
        needs = ((node.name, _required(node.args)) for node in functions)
        return next((name for name, args in needs if len(args) > 1 and args[0] in _WEIGHTS), "")

    def script(self) -> Script:
        """Returns how the file runs as a script."""
        trains = [node for node in top(self._file.tree.body) if self._trains(node)]
        makes, place = self._makes_lines(top(self._file.tree.body), {}), ""
        if not makes:
            place, makes = self._lines_in_main()
        span = (trains[0].lineno, _end(trains[-1])) if trains else None
        return Script(trains=span, makes=makes, place=place)

    def forward(self, module: ast.ClassDef) -> ast.FunctionDef | None:
        """Returns the method that runs a module; a base class in the file may define it."""
        return next(filter(None, (self.method(module, name) for name in _FORWARD)), None)

    def method(self, module: ast.ClassDef, name: str) -> ast.FunctionDef | None:
        """Returns a method of a class, or of a base class in the file."""
        for one in self._lineage(module):
            functions = (n for n in one.body if isinstance(n, ast.FunctionDef))
            if method := next((node for node in functions if node.name == name), None):
                return method
        return None

    def needs(self, module: ast.ClassDef) -> tuple[str, ...]:
        """Returns the required arguments of a class."""
        made = self.method(module, "__init__")
        if made is not None:
            return _required(made.args, skip=1)
        fields = [
            node
            for one in reversed(self._lineage(module))
            if self._has_fields(one)
            for node in one.body
            if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.dump(node.annotation)
        ]
        return tuple(
            node.target.id
            for node in fields
            if node.value is None and isinstance(node.target, ast.Name)
        )

    def _has_fields(self, module: ast.ClassDef) -> bool:
        decorators = {self.whole_name(getattr(n, "func", n)) for n in module.decorator_list}
        bases = {self.whole_name(base) for base in module.bases}
        return any(name.endswith("dataclass") for name in decorators) or bool(
            bases & {"flax.linen.Module", "equinox.Module"}
        )

    def _lineage(self, module: ast.ClassDef) -> list[ast.ClassDef]:
        """Returns a class and its bases in the file, starting with the class."""
        classes = [module]
        for one in classes:
            bases = map(self.classes.get, self._bases[one.name])
            classes += [base for base in bases if base is not None and base not in classes]
        return classes

    def _class(self, module: ast.ClassDef) -> Candidate | None:
        bases = [base for one in self._lineage(module) for base in self._bases[one.name]]
        if _NOT_A_MODEL.search(module.name) or any(map(_NO_MODULE.search, bases)):
            return None
        is_sure = any(map(_IS_MODULE.search, bases))
        runs = self.forward(module) is not None
        is_callable_alone = bool(bases) or self._functions_are_models
        if not (is_sure or (runs and (is_callable_alone or self.method(module, "forward")))):
            return None
        if module.name in self._extended and not runs:
            return None
        return Candidate(
            name=module.name, needs=self.needs(module), is_sure=is_sure, module=module, made=None
        )

    def _function(self, node: Function) -> Candidate | None:
        words = set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower()))
        needs = _required(node.args)
        is_decorated = any("fixture" in ast.unparse(d) for d in node.decorator_list)
        if not isinstance(node, ast.FunctionDef) or is_decorated:
            return None
        of_inputs = self._functions_are_models and bool(needs) and needs[0] not in _NO_INPUTS
        is_part = node.name in _PARTS and not of_inputs
        if node.name.startswith("_") or node.name in _NEVER or is_part:
            return None
        values = list(_returned(node))
        if not values or _is_generator(node):
            return None
        local = dict(_assigned(_own_statements(node)))
        made = next(filter(None, (self._made(value, local) for value in values)), None)
        if made is None and words & _OTHER_WORDS:
            return None
        if needs and not (made or of_inputs or words & _WORDS_OF_MODELS):
            return None
        return Candidate(
            name=node.name,
            needs=() if of_inputs and made is None else needs,
            is_sure=made is not None,
            module=self.classes.get(self.whole_name(made.func)) if made else None,
            made=made,
        )

    def _made(
        self, value: ast.AST | None, local: Mapping[str, ast.expr], depth: int = 8
    ) -> ast.Call | None:
        """Returns the call in an expression that makes a model; None without one."""
        if value is None or depth == 0:
            return None
        again = functools.partial(self._made, local=local, depth=depth - 1)
        if isinstance(value, ast.Name):
            return again(local.get(value.id) or self._values.get(value.id))
        if isinstance(value, ast.NamedExpr | ast.Await):
            return again(value.value)
        if not isinstance(value, ast.Call):
            return None
        name = self.whole_name(value.func)
        if name in self.classes:
            return value if self._class(self.classes[name]) else None
        if name in self._functions and not self._functions[name].args.args:
            made = self._function(self._functions[name])
            return made.made if made else None
        if name in _WRAPPERS and value.args:
            return again(value.args[0])
        if _MAKES_MODEL.fullmatch(name):
            return None if _NOT_A_MODEL.search(name) else value
        if isinstance(value.func, ast.Attribute) and value.func.attr in _METHODS:
            return again(value.func.value)
        return None

    def whole_name(self, node: ast.AST) -> str:
        """Returns the full dotted name that an expression refers to; empty if none."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self._imports.get(node.id, node.id), *reversed(parts)])

    def integers(self) -> dict[str, int]:
        """Returns the top-level names that are set to integers, with their values."""
        return {
            name: value.value
            for name, value in self._values.items()
            if isinstance(value, ast.Constant) and type(value.value) is int
        }

    def _trains(self, node: ast.stmt, depth: int = 4) -> bool:
        if isinstance(node, ast.ClassDef | Function) or depth == 0:
            return False
        calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
        methods = [n.func for n in calls if isinstance(n.func, ast.Attribute)]
        trainers = (ast.unparse(n.value) for n in methods if n.attr == "train")
        if any(n.attr in _TRAINS for n in methods) or any(map(self._is_trainer, trainers)):
            return True
        if self._made(getattr(node, "value", None), {}):
            return False  # a factory may train the model that it returns
        called = _called_names(node) & set(self._functions)
        bodies = (self._functions[name].body for name in called)
        return any(self._trains(inner, depth - 1) for body in bodies for inner in body)

    def _is_trainer(self, text: str) -> bool:
        value = self._values.get(text)
        return "Trainer" in (ast.unparse(value) if value is not None else text)

    def _lines_in_main(self) -> tuple[str, tuple[int, int] | None]:
        """Returns the function that a script runs and that makes a model, with the lines."""
        for node in self._file.tree.body:
            if isinstance(node, ast.If) and is_left_out(node):
                if lines := self._makes_lines(node.body, {}):
                    return 'the block `if __name__ == "__main__":`', lines
                for name in sorted(_called_names(node) & set(self._functions)):
                    if lines := self._making_lines(name):
                        return f"{name}()", lines
        for name in ("main", "train", "run"):
            if name in self._functions and (lines := self._making_lines(name)):
                return f"{name}()", lines
        return "", None

    def _making_lines(self, name: str) -> tuple[int, int] | None:
        statements = list(_own_statements(self._functions[name]))
        return self._makes_lines(statements, dict(_assigned(statements)))

    def _makes_lines(
        self, statements: Iterable[ast.stmt], local: Mapping[str, ast.expr]
    ) -> tuple[int, int] | None:
        for node in statements:
            value = getattr(node, "value", None)
            is_set = isinstance(node, ast.Assign | ast.AnnAssign)
            if is_set and self._made(value, local):
                return node.lineno, _end(node)
        return None


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    yield alias.asname, alias.name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _assigned(statements: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in statements:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.AnnAssign) and value is not None:
            yield from ((t.id, value) for t in targets if isinstance(t, ast.Name))


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes of a function, without nested functions."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, Function | ast.Lambda | ast.ClassDef):
            yield from _own_nodes(child)


def _own_statements(node: Function) -> Iterator[ast.stmt]:
    return (n for n in _own_nodes(node) if isinstance(n, ast.stmt))


def _returned(node: Function) -> Iterator[ast.expr]:
    for inner in _own_nodes(node):
        if isinstance(inner, ast.Return) and inner.value is not None:
            is_none = isinstance(inner.value, ast.Constant) and inner.value.value is None
            if not is_none:
                yield inner.value


def _is_generator(node: Function) -> bool:
    return any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in _own_nodes(node))


def _called_names(node: ast.AST) -> set[str]:
    functions = (inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return {function.id for function in functions if isinstance(function, ast.Name)}


def _loaded(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _required(arguments: ast.arguments, skip: int = 0) -> tuple[str, ...]:
    """Returns the arguments without a default, after the first `skip`."""
    positional = [*arguments.posonlyargs, *arguments.args]
    count = len(positional) - len(arguments.defaults)
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return (
        *(argument.arg for argument in positional[skip:count]),
        *(argument.arg for argument, default in keywords if default is None),
    )


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _lines(span: tuple[int, int]) -> str:
    first, last = span
    return f"line {first}" if first == last else f"lines {first}-{last}"
