"""Benchmark cases of operators: one for each operator, shape, type and framework."""

from collections.abc import Iterable, Mapping, Sequence

from comparative_benchmark.micro.shapes import Shape
from openxla.benchmark import operators, testdata
from openxla.benchmark.def_types import (
    BenchmarkCase,
    Model,
    ModelFrameworkType,
    ModelImplementation,
)

_ROOM = operators.__name__
_MODULES: Mapping[ModelFrameworkType, tuple[str, str]] = {
    ModelFrameworkType.PYTORCH: ("PT", "in_torch"),
    ModelFrameworkType.JAX: ("JAX", "in_jax"),
    ModelFrameworkType.TF_V2: ("TF", "in_tensorflow"),
}
TAG = "operator"


def implementation(framework: ModelFrameworkType) -> ModelImplementation:
    """Returns how operators are written in a framework."""
    short, module = _MODULES[framework]
    return ModelImplementation(
        name=f"OPERATOR_{short}",
        tags=[TAG],
        framework_type=framework,
        module_path=f"{_ROOM}.{module}",
        architecture=f"{_ROOM}.architecture",
    )


def model_name(operator: str, data_type: str, framework: ModelFrameworkType, shape: Shape) -> str:
    """Returns e.g. `MATMUL_FP32_PT_64X128X256`; what the operator does not use counts as 1.

    Raises:
      DefinitionError: there is no such operator.
    """
    m, k, n = operators.get(operator).shape(shape.m, shape.k, shape.n)
    return f"{operator.upper()}_{data_type.upper()}_{_MODULES[framework][0]}_{m}X{k}X{n}"


def cases(
    names: Sequence[str],
    shapes: Iterable[Shape],
    data_types: Sequence[str],
    frameworks: Iterable[ModelFrameworkType] = tuple(_MODULES),
) -> list[BenchmarkCase]:
    """Returns the cases of operators.

    Shapes that differ only in what an operator does not depend on are one.

    Raises:
      DefinitionError: there is no such operator or type.
    """
    wanted = list(shapes)
    found: dict[str, BenchmarkCase] = {}
    for name in names:
        operator = operators.get(name)
        for data_type in data_types:
            for shape in wanted:
                m, k, n = operator.shape(shape.m, shape.k, shape.n)
                for framework in frameworks:
                    model = Model(
                        name=model_name(name, data_type, framework, shape),
                        model_impl=implementation(framework),
                        model_parameters={
                            "model_name": name,
                            "data_type": data_type,
                            "m": m,
                            "k": k,
                            "n": n,
                        },
                    )
                    case = BenchmarkCase.build(
                        model=model, input_data=testdata.INPUT_DATA_MODEL_DEFAULT
                    )
                    found.setdefault(case.name, case)
    return list(found.values())
