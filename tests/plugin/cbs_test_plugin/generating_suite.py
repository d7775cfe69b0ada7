"""Models that continue prompts: two that are right, and one for each way to be wrong."""

from openxla.benchmark import def_types, testdata

WRONG = (
    "stale-cache",
    "writes-one-place-further",
    "mask-one-too-short",
    "wrong-position",
    "second-best",
    "late-garbage",
)
IMPLEMENTATION = def_types.ModelImplementation(
    name="TOY_TEXT",
    framework_type=def_types.ModelFrameworkType.PYTORCH,
    module_path="cbs_test_plugin.generator",
    architecture="cbs_test_plugin.generator",
    reference="cbs_test_truth:reference",
)


def model(name: str, **parameters: def_types.ParameterValue) -> def_types.Model:
    """Returns a model of the toy."""
    return def_types.Model(
        name=name,
        model_impl=IMPLEMENTATION,
        model_parameters={
            "model_name": "toy-text",
            "data_type": "fp32",
            "max_new_tokens": 8,
            **parameters,
        },
    )


def _faulty(fault: str, *, twins: bool = False) -> def_types.Model:
    name = f"{'TWINS' if twins else 'TEXT'}_{fault.upper().replace('-', '_')}"
    return model(name, fault=fault, model_name="toy-text-twins" if twins else "toy-text")


# The good ones first: they make the truth that the others are judged by.
MODELS = [
    _faulty("none"),
    _faulty("none", twins=True),
    *(_faulty(fault) for fault in WRONG),
    _faulty("ignores-what-it-is-fed", twins=True),
    _faulty("late-garbage", twins=True),
    *(_faulty(fault) for fault in ("no-parts", "parts-crash", "parts-wrong")),
]

ALL_BENCHMARKS = [
    def_types.BenchmarkCase.build(model=item, input_data=testdata.INPUT_DATA_MODEL_DEFAULT)
    for item in MODELS
]
