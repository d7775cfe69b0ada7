"""Networks that are trained wrong in one way each, in two frameworks; and right ones."""

from cbs_test_plugin.adversaries_steps import ONLY_IN_TORCH, ONLY_MIXED, STEPS, UPDATES
from openxla.benchmark import def_types, testdata
from openxla.benchmark.comparative_suite import training_cases

_NETWORKS = {
    "BERT": {"model_name": "bert-tiny", "seq_len": 32},
    "RESNET": {"model_name": "resnet-tiny"},
}


def _model(
    framework: str, fault: str, data_type: str = "fp32", network: str = "BERT"
) -> def_types.Model:
    right = training_cases.implementation(framework)
    return def_types.Model(
        name=f"{network}_{fault.upper().replace('-', '_')}_{data_type.upper()}_{framework}",
        tags=["adversary"],
        model_impl=def_types.ModelImplementation(
            name=f"TRAINING_{framework}_adversary",
            tags=[],
            framework_type=right.framework_type,
            module_path="cbs_test_plugin.adversaries_steps",
            architecture=right.architecture,
        ),
        model_parameters={
            **_NETWORKS[network],
            "data_type": data_type,
            "batch_size": 4,
            "train": "adamw",
            "fault": fault,
            "framework": framework.lower(),
        },
    )


# The good ones first: they make the truth that the others are judged by.
MODELS = [
    *(
        _model(framework, fault)
        for framework, faults in (
            ("PT", (*STEPS["adamw"], *ONLY_IN_TORCH, *UPDATES)),
            ("JAX", (*STEPS["adamw"], *UPDATES)),
        )
        for fault in ("none", *faults)
    ),
    *(_model("PT", fault, "bf16") for fault in ("none", *ONLY_MIXED)),
    *(
        _model(framework, fault, "bf16", "RESNET")
        for framework in ("PT", "JAX")
        for fault in ("none", *UPDATES)
    ),
]
ALL_BENCHMARKS = [
    def_types.BenchmarkCase.build(
        model=model,
        input_data=testdata.INPUT_DATA_MODEL_DEFAULT,
        verify_parameters=training_cases.VERIFY_PARAMETERS[
            str(model.model_parameters["data_type"])
        ],
    )
    for model in MODELS
]
