"""Benchmark cases of operators: one per operator, shape, type and framework."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from openxla.benchmark import operators, testdata
from openxla.benchmark.def_types import (
    BenchmarkCase,
    Model,
    ModelFrameworkType,
    ModelImplementation,
    ParameterValue,
)
from openxla.benchmark.operators.architecture import FORWARD_BACKWARD, trains

_PACKAGE = operators.__name__
_ARCHITECTURE = f"{_PACKAGE}.architecture"
_MODULES: Mapping[ModelFrameworkType, tuple[str, str]] = {
    ModelFrameworkType.PYTORCH: ("PT", "in_torch"),
    ModelFrameworkType.JAX: ("JAX", "in_jax"),
    ModelFrameworkType.TF_V2: ("TF", "in_tensorflow"),
}
_FIELDS = dict(zip(_MODULES, operators.FRAMEWORKS, strict=True))
TAG = "operator"
_BACKWARD = "_FWD_BWD"
# Plug-ins choose the names of their operators freely.
_NAME = re.compile(rf"(.+?)({_BACKWARD})?_(FP32|FP16|BF16)_([A-Z]+)_(\d+)X(\d+)X(\d+)")


class Shape(Protocol):
    """Sizes of an operator: [m, k] times [k, n]."""

    @property
    def m(self) -> int:
        """Rows of the first matrix."""

    @property
    def k(self) -> int:
        """Length of the sums."""

    @property
    def n(self) -> int:
        """Columns of the second matrix."""


def implementation(framework: ModelFrameworkType) -> ModelImplementation:
    """Returns the implementation of operators in a framework."""
    short, module = _MODULES[framework]
    return ModelImplementation(
        name=f"OPERATOR_{short}",
        tags=[TAG],
        framework_type=framework,
        module_path=f"{_PACKAGE}.{module}",
        architecture=_ARCHITECTURE,
    )


def why_not_written(model: Model) -> str | None:
    """Returns why an operator cannot run in the framework of its model; None for other models."""
    if model.model_impl.architecture != _ARCHITECTURE:
        return None
    field = _FIELDS[model.model_impl.framework_type]
    operator = operators.get(str(model.model_parameters["model_name"]))
    if field in operator.frameworks:
        return None
    written = ", ".join(operator.frameworks)
    return f"operator {operator.name} has no {field} function, only {written}"


def model_name(
    operator: str,
    data_type: str,
    framework: ModelFrameworkType,
    shape: Shape,
    *,
    backward: bool = False,
) -> str:
    """Returns e.g. `MATMUL_FP32_PT_64X128X256`; dimensions that the operator ignores count as 1.

    For forward and backward, it is `MATMUL_FWD_BWD_FP32_PT_64X128X256`.

    Raises:
      DefinitionError: the operator is unknown.
    """
    sizes = operators.get(operator).shape(shape.m, shape.k, shape.n)
    return _case(operator, data_type, framework, sizes, backward=backward).model.name


def named(model: str) -> BenchmarkCase | None:
    """Returns the case of an operator by its model's name; None if the name is unknown."""
    if not (match := _NAME.fullmatch(model)):
        return None
    by_short = {short: framework for framework, (short, _) in _MODULES.items()}
    by_name = {name.upper(): name for name in operators.operators()}
    name, framework = by_name.get(match[1].upper()), by_short.get(match[4])
    if name is None or framework is None:
        return None
    m, k, n = (int(size) for size in match.groups()[4:])
    backward = match[2] is not None
    if backward and not operators.get(name).is_differentiable:
        return None
    return _case(name, match[3].lower(), framework, (m, k, n), backward=backward)


def cases(
    names: Sequence[str],
    shapes: Iterable[Shape],
    data_types: Sequence[str],
    frameworks: Iterable[ModelFrameworkType] = tuple(_MODULES),
    *,
    backward: bool = False,
) -> list[BenchmarkCase]:
    """Returns the cases of operators, forward or forward and backward.

    Shapes that only differ in dimensions that an operator ignores give one case.

    Raises:
      DefinitionError: an operator or type is unknown, or has no gradients.
    """
    wanted = list(shapes)
    by_name: dict[str, BenchmarkCase] = {}
    for name in names:
        operator = operators.get(name)
        for data_type in data_types:
            for shape in wanted:
                m, k, n = operator.shape(shape.m, shape.k, shape.n)
                for framework in frameworks:
                    case = _case(name, data_type, framework, (m, k, n), backward=backward)
                    by_name.setdefault(case.name, case)
    return list(by_name.values())


def _case(
    operator: str,
    data_type: str,
    framework: ModelFrameworkType,
    shape: tuple[int, int, int],
    *,
    backward: bool,
) -> BenchmarkCase:
    m, k, n = shape
    named = f"{operator.upper()}{_BACKWARD if backward else ''}"
    parameters: dict[str, ParameterValue] = {"model_name": operator, "data_type": data_type}
    parameters |= {"m": m, "k": k, "n": n}
    # A case without the parameter runs forward, so existing digests do not change.
    if backward:
        parameters["direction"] = FORWARD_BACKWARD
        trains(parameters)  # raises for an operator without gradients
    model = Model(
        name=f"{named}_{data_type.upper()}_{_MODULES[framework][0]}_{m}X{k}X{n}",
        model_impl=implementation(framework),
        model_parameters=parameters,
    )
    return BenchmarkCase.build(model=model, input_data=testdata.INPUT_DATA_MODEL_DEFAULT)
