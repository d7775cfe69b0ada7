"""Reader for the YAML files of torchao's benchmarking guide, in its versions of 2025 and 2026.

Only plain values are allowed: tags, anchors and aliases are refused, and names such as
`torch.bfloat16` are looked up, not evaluated. Errors are reported with line and column.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import attrs
import yaml

from comparative_benchmark.backends import recipes
from comparative_benchmark.backends.recipes.registry import accept_from_guide
from comparative_benchmark.errors import UsageError
from comparative_benchmark.sources.yaml_files import YamlFile
from comparative_benchmark.studies.micro import shapes
from comparative_benchmark.studies.micro.shapes import Shape
from openxla.benchmark import operators, user_models
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import BenchmarkCase, ModelFrameworkType
from openxla.benchmark.operators import guide_functions
from openxla.benchmark.operators.definition import Layer
from openxla.benchmark.text import choices

BASELINE = "baseline"
TRAINING = "training"
_MODES = ("inference", TRAINING)
_TYPES: Mapping[str, str] = {
    f"{prefix}{name}": ours
    for prefix in ("torch.", "")
    for name, ours in (
        *(("bfloat16", "bf16"), ("bf16", "bf16"), ("float16", "fp16"), ("half", "fp16")),
        *(("fp16", "fp16"), ("float32", "fp32"), ("float", "fp32"), ("fp32", "fp32")),
    )
}
# Names in the guide that omit a parameter, with torchao's default.
_SHORT: Mapping[str, str] = {"block": "block-64", "float8dq": "float8dq-tensor"}
# Inductor's modes as options of our compiler.
COMPILE_MODES: Mapping[str, str] = {
    "default": "inductor",
    "max-autotune": "inductor+max-autotune",
    "max-autotune-no-cudagraphs": "inductor+max-autotune",
    "reduce-overhead": "inductor+cuda-graphs",
}
# Prefix of the names of cases, as shown by `cbs list`.
_CASES = "models/"
DEVICES: Mapping[str, str] = {"cpu": "host-cpu", "cuda": "host-gpu"}
_KEYS = (
    *("benchmark_mode", "quantization_config_recipe_names", "sparsity_config_recipe_names"),
    *("output_dir", "model_params"),
)
_MODEL_KEYS = (
    *("name", "matrix_shapes", "high_precision_dtype", "use_torch_compile", "torch_compile_mode"),
    *("device", "model_type", "enable_profiler", "enable_memory_profiler"),
)
_SHAPE_KEYS = ("name", "shapes", "min_power", "max_power")


@attrs.frozen(kw_only=True)
class ModelEntry:
    """An entry of `model_params`.

    Attributes:
      shapes: shapes with the names of their sets; for a whole model, one pair with None.
      compiler: compiler for the compiled columns; None if the file requests none.
      device: as given with `-device`.
      training: whether it runs forward and backward, according to `benchmark_mode`.
      case: the case of a whole model, named by `model_type`; None for a layer.
      own: whether it is a model from the user's `create_model_and_input_data()`.
    """

    name: str
    shapes: tuple[tuple[str, Shape | None], ...]
    data_type: str
    compiler: str | None
    compile_mode: str
    device: str
    model_type: str
    profiler: bool
    memory_profiler: bool
    case: BenchmarkCase | None = None
    training: bool = False
    own: bool = False


@attrs.frozen(kw_only=True)
class Config:
    """A configuration file.

    Attributes:
      mode: `inference`, or `training`, which runs forward and backward.
      quantizations, sparsities: recipes in order, including `baseline`; None means no sparsity.
      first_generation: whether it uses `use_torch_compile`, as in the guide's first version.
    """

    mode: str
    quantizations: tuple[str, ...]
    sparsities: tuple[str | None, ...]
    output_dir: str
    models: tuple[ModelEntry, ...]
    first_generation: bool


def read(path: Path, *, highest: int | None = None) -> Config:
    """Reads a configuration file.

    Args:
      path: the file.
      highest: upper limit for `max_power`.

    Raises:
      UsageError: the file is unreadable or invalid.
    """
    return _Reader(path, highest).read()


def data_type_of(name: str) -> str:
    """Returns our name for a data type, e.g. for `torch.bfloat16`.

    Raises:
      UsageError: layers do not support it.
    """
    if name not in _TYPES:
        raise UsageError(f"unknown data type {name!r}; {choices(name, list(_TYPES))}")
    return _TYPES[name]


class _Reader:
    def __init__(self, path: Path, highest: int | None) -> None:
        self._path, self._highest = path, highest
        self._file = YamlFile(path)
        self._fail = self._file.fail

    def read(self) -> Config:
        fields = self._mapping(self._file.document(), _KEYS, "the file")
        if "model_params" not in fields:
            raise UsageError(f"{self._path}: 'model_params' is missing")
        entries = self._items(fields["model_params"])
        if not entries:
            self._fail(fields["model_params"], "'model_params' must list at least one model")
        names = fields.get("quantization_config_recipe_names")
        quantizations = self._recipes(names) if names else [BASELINE]
        sparse = fields.get("sparsity_config_recipe_names")
        models = [self._model(entry) for entry in entries]
        mode = self._choice(fields.get("benchmark_mode"), _MODES, "inference")
        kinds = {"whole models": any(model.case for model, _ in models)}
        kinds["create_model_and_input_data() models"] = any(model.own for model, _ in models)
        for kind in [name for name, present in kinds.items() if present and mode == TRAINING]:
            self._fail(fields["benchmark_mode"], f"{kind} support only the mode 'inference'")
        return Config(
            mode=mode,
            # The baseline is always measured, because the others are compared with it.
            quantizations=tuple(dict.fromkeys([BASELINE, *quantizations])),
            sparsities=(None, *(n for n in self._recipes(sparse) if n != BASELINE))
            if sparse
            else (None,),
            output_dir=self._text(fields.get("output_dir"), "benchmarks/microbenchmarks/results"),
            models=tuple(attrs.evolve(model, training=mode == TRAINING) for model, _ in models),
            first_generation=any(first for _, first in models),
        )

    def _mapping(self, node: yaml.Node, known: Sequence[str], kind: str) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            self._fail(node, f"{kind} must be a mapping; allowed keys are {', '.join(known)}")
        items: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fail(key, "keys must be strings")
            if key.value not in known:
                self._fail(key, f"unknown key {key.value!r}; {choices(key.value, known)}")
            if key.value in items:
                self._fail(key, f"duplicate key {key.value!r}")
            items[key.value] = value
        return items

    def _items(self, node: yaml.Node) -> list[yaml.Node]:
        # The guide's first files have one mapping where later ones have a list.
        return list(node.value) if isinstance(node, yaml.SequenceNode) else [node]

    def _model(self, node: yaml.Node) -> tuple[ModelEntry, bool]:
        fields = self._mapping(node, _MODEL_KEYS, "a model")
        kind = self._text(fields.get("model_type"), "linear")
        kind = "ln_linear_relu" if kind == "ln_linear" else kind
        case = self._whole_model(fields, kind)
        layers = [n for n, item in operators.operators().items() if isinstance(item, Layer)]
        is_own = case is None and kind not in layers
        if is_own and not guide_functions.may_be(kind):
            self._unknown_model(fields["model_type"], kind, layers)
        if case is None and "matrix_shapes" not in fields:
            self._fail(node, "'matrix_shapes' is missing")
        compiles = self._flag(fields.get("use_torch_compile"), default=True)
        mode = self._choice(fields.get("torch_compile_mode"), COMPILE_MODES, "default")
        model = ModelEntry(
            name=self._text(fields.get("name"), kind),
            shapes=(("", None),)
            if case
            else tuple(
                pair
                for entry in self._items(fields["matrix_shapes"])
                for pair in self._shapes(entry)
            ),
            data_type=self._data_type(fields, case),
            compiler=COMPILE_MODES[mode] if compiles else None,
            compile_mode=mode,
            device=DEVICES[self._choice(fields.get("device"), DEVICES, "cuda")],
            model_type=kind,
            profiler=self._flag(fields.get("enable_profiler"), default=False),
            memory_profiler=self._flag(fields.get("enable_memory_profiler"), default=False),
            case=case,
            own=is_own,
        )
        if not model.shapes:
            self._fail(fields["matrix_shapes"], "no shapes to measure")
        if is_own:
            shape = min((s for _, s in model.shapes if s), key=lambda s: s.m * s.k * s.n)
            sizes = (shape.m, shape.k, shape.n)
            if refusal := guide_functions.why_no_model(kind, sizes, model.data_type):
                self._unknown_model(fields["model_type"], kind, layers, refusal)
        return model, "use_torch_compile" in fields

    def _unknown_model(
        self,
        node: yaml.Node,
        kind: str,
        layers: Sequence[str],
        refusal: guide_functions.Refusal | None = None,
    ) -> NoReturn:
        hint = f"{refusal.clause if refusal else ''}{guide_functions.MODEL_HINT}"
        self._fail(node, f"unknown model type {kind!r}; {choices(kind, layers)}; {hint}")

    def _whole_model(self, fields: dict[str, yaml.Node], kind: str) -> BenchmarkCase | None:
        """Returns the case of a model from the suite or from the user; None for a layer."""
        if kind.startswith(_CASES):
            return self._case(fields, kind)
        folder = self._path.absolute().parent
        if kind in operators.operators() or not user_models.is_model(kind, folder):
            return None
        self._refuse_shapes(fields)
        given = fields.get("high_precision_dtype")
        wanted = user_models.ModelOptions(
            data_types=(_TYPES[self._choice(given, _TYPES, "")],) if given else (),
            framework=ModelFrameworkType.PYTORCH.value,
            folder=folder,
        )
        try:
            (case,) = user_models.find_cases_bounded(kind, wanted).cases
        except user_models.UserModelError as error:
            self._fail(fields["model_type"], str(error))
        return case

    def _refuse_shapes(self, fields: dict[str, yaml.Node]) -> None:
        if "matrix_shapes" in fields:
            self._fail(
                fields["matrix_shapes"],
                "a whole model defines its own shapes; remove 'matrix_shapes'",
            )

    def _case(self, fields: dict[str, yaml.Node], name: str) -> BenchmarkCase:
        """Returns the PyTorch case of a whole model, which defines its own shapes and data type."""
        self._refuse_shapes(fields)
        pytorch = [
            case
            for case in catalog.all_benchmarks(())
            if case.model.model_impl.framework_type is ModelFrameworkType.PYTORCH
        ]
        try:
            cases = catalog.select(pytorch, name=name)
        except (catalog.NoMatchError, re.error) as error:
            self._fail(fields["model_type"], str(error))
        if len(cases) > 1:
            names = ", ".join(case.name for case in cases[:3])
            self._fail(
                fields["model_type"],
                f"{name!r} matches {len(cases)} cases, expected one: {names} ...",
            )
        return cases[0]

    def _data_type(self, fields: dict[str, yaml.Node], case: BenchmarkCase | None) -> str:
        given = fields.get("high_precision_dtype")
        data_type = _TYPES[self._choice(given, _TYPES, "bfloat16")]
        if case is None:
            return data_type
        if given is not None and data_type != case.data_type:
            self._fail(given, f"expected the model's data type ({case.data_type}), got {data_type}")
        return str(case.data_type)

    def _shapes(self, node: yaml.Node) -> list[tuple[str, Shape]]:
        fields = self._mapping(node, _SHAPE_KEYS, "an entry of matrix_shapes")
        if "name" not in fields:
            self._fail(node, "'name' is missing")
        name = self._text(fields["name"], "")
        lowest, highest = (self._number(fields.get(f"{end}_power")) for end in ("min", "max"))
        if self._highest is not None:
            highest = min(self._highest, highest if highest is not None else self._highest)
            # If the limit is below the whole range, use the default width of the sweep.
            lowest = None if lowest is not None and lowest > highest else lowest
        rows: list[list[int | None]] = []
        if name == shapes.CUSTOM:
            given = fields.get("shapes")
            if given is None:
                self._fail(node, "'shapes' is missing; expected [[m, k, n], ...]")
            if isinstance(given, yaml.SequenceNode):
                rows = [[*map(self._number, self._row(row))] for row in given.value]
        try:
            if name == shapes.CUSTOM:
                return [(name, shapes.of(*row)) for row in rows]
            return [(name, s) for s in shapes.named(name, lowest=lowest, highest=highest)]
        except UsageError as error:
            self._fail(node, str(error))

    def _row(self, node: yaml.Node) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode):
            self._fail(node, "a shape must be a list of three numbers, [m, k, n]")
        return list(node.value)

    def _recipes(self, node: yaml.Node) -> list[str]:
        if not isinstance(node, yaml.SequenceNode):
            self._fail(node, "expected a list of recipes")
        names = []
        for item in node.value:
            name = self._text(item, BASELINE)
            name = BASELINE if name in ("None", "null", "") else _SHORT.get(name, name)
            if name != BASELINE:
                try:
                    recipes.parse(name)
                except recipes.RecipeError as error:
                    if refusal := accept_from_guide(name):
                        hint = f"{refusal.clause}{guide_functions.RECIPE_HINT}"
                        self._fail(item, f"{error}; {hint}")
            names.append(name)
        return names

    def _text(self, node: yaml.Node | None, default: str) -> str:
        if node is None:
            return default
        if not isinstance(node, yaml.ScalarNode):
            self._fail(node, "expected a string")
        return str(node.value)

    def _choice(self, node: yaml.Node | None, known: Iterable[str], default: str) -> str:
        value, names = self._text(node, default), list(known)
        if value not in names:
            self._fail(node, f"unknown value {value!r}; {choices(value, names)}")
        return value

    def _flag(self, node: yaml.Node | None, *, default: bool) -> bool:
        if node is None:
            return default
        value = self._choice(node, ("true", "True", "false", "False"), "")
        return value.lower() == "true"

    def _number(self, node: yaml.Node | None) -> int | None:
        if node is None:
            return None
        text = self._text(node, "")
        if not text.removeprefix("-").isdecimal():
            self._fail(node, f"expected a whole number, got {text!r}")
        return int(text)
