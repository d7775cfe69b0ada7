"""The snippets of the OpenXLA suite's guide run word for word."""

SNIPPET_STEP_2 = """
from openxla.benchmark import def_types

# First describe our base model implementation, including the path to find the
# module of the code.
EXAMPLE_PT_IMPL = def_types.ModelImplementation(
    name="EXAMPLE_PT",
    tags=["example"],
    framework_type=def_types.ModelFrameworkType.PYTORCH,
    # This path will be loaded with importlib.import_module.
    module_path="openxla.benchmark.models.pt.example",
    source_info="https://pytorch.org/vision/stable/models/mobilenetv3.html",
)
# Define a model variant on the base model with batch size = 32 and data type = fp32
EXAMPLE_FP32_PT_BATCH32 = def_types.Model(
    name="EXAMPLE_FP32_PT_BATCH32",
    tags=["batch-32", "example"],
    model_impl=EXAMPLE_PT_IMPL,
    model_parameters={
        "batch_size": 32,
        "data_type": "fp32",
    },
)
"""

SNIPPET_STEP_3 = """
from openxla.benchmark import def_types, testdata

# Define a benchmark case with default input data.
EXAMPLE_FP32_PT_BATCH32_CASE = def_types.BenchmarkCase.build(
  model=EXAMPLE_FP32_PT_BATCH32,
  input_data=testdata.INPUT_DATA_MODEL_DEFAULT,
)
"""


def test_the_snippets_of_steps_2_and_3_make_a_case():
    names: dict[str, object] = {}
    exec(SNIPPET_STEP_2, names)  # as a reader of the guide types it
    exec(SNIPPET_STEP_3, names)
    case = names["EXAMPLE_FP32_PT_BATCH32_CASE"]
    assert str(case) == "models/EXAMPLE_FP32_PT_BATCH32/inputs/INPUT_DATA_MODEL_DEFAULT"
    assert case.tags == ("example", "batch-32")
    assert (case.batch_size, case.data_type) == (32, "fp32")


def test_the_interface_and_lists_that_the_guide_names_exist():
    from openxla.benchmark.comparative_suite.jax import benchmark_definitions as jax_cases
    from openxla.benchmark.comparative_suite.jax import model_definitions as jax_models
    from openxla.benchmark.comparative_suite.pt import benchmark_definitions as pt_cases
    from openxla.benchmark.comparative_suite.pt import model_definitions as pt_models
    from openxla.benchmark.models import model_interfaces

    for method in ("generate_default_inputs", "preprocess", "forward", "postprocess"):
        assert callable(getattr(model_interfaces.InferenceModel, method))
    assert sorted(pt_models.EXAMPLE_FP32_PT_BATCHES) == sorted(pt_cases.EXAMPLE_FP32_PT_CASES)
    for models, cases in ((pt_models, pt_cases), (jax_models, jax_cases)):
        assert {case.model for case in cases.ALL_BENCHMARKS} == set(models.ALL_MODELS)
