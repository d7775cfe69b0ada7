"""Tiny BERT in PyTorch with one fault each.

All share the workload of the tiny BERT of the suite, so that the good model makes the truth. Select
that one as well, or the first fault is asked for it. The last one behaves: it shows that the device
still works.
"""

from openxla.benchmark import testdata
from openxla.benchmark.def_types import (
    BenchmarkCase,
    Model,
    ModelFrameworkType,
    ModelImplementation,
)

# Name to how a trial of it must end; `cbs run` goes through them in this order.
FAULTS = {
    "memory": "out_of_memory",
    "kernel-error": "failed",
    "broken-context": "failed",
    "killed-in-kernel": "crashed",
    "hang": "timeout",
    "none": "ok",
}
GOOD_CASE = "models/BERT_TINY_FP32_PT_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"

_IMPLEMENTATION = ModelImplementation(
    name="PLANTED_BERT_PT",
    tags=["planted"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path="gpu_check.planted.model",
    architecture="bert",
)


def model_name(fault: str) -> str:
    """Returns the name of the model with that fault."""
    return f"PLANTED_{fault.upper().replace('-', '_')}"


def _model(fault: str) -> Model:
    return Model(
        name=model_name(fault),
        tags=["planted"],
        model_impl=_IMPLEMENTATION,
        model_parameters={
            "batch_size": 1,
            "data_type": "fp32",
            "seq_len": 32,
            "model_name": "bert-tiny",
            "fault": fault,
        },
    )


ALL_BENCHMARKS = [
    BenchmarkCase.build(model=_model(fault), input_data=testdata.INPUT_DATA_MODEL_DEFAULT)
    for fault in FAULTS
]
