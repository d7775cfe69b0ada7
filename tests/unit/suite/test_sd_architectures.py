"""Stable Diffusion's parts: inputs as declared, stages that fit together."""

import numpy as np
import pytest

from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.models.architectures import sd_unet, sd_vae
from openxla.benchmark.models.preprocessing import numpy_dtype
from openxla.benchmark.workloads import workload_of

TINY = {
    "sd_clip": {"model_name": "sd-clip-tiny", "seq_len": 32},
    "sd_unet": {"model_name": "sd-unet-tiny"},
    "sd_vae": {"model_name": "sd-vae-tiny"},
}


def inputs_of(name, batch_size, data_type):
    parameters = {**TINY[name], "batch_size": batch_size, "data_type": data_type}
    architecture = architectures.get(name)
    checkpoint = checkpoints.resolve(architecture, parameters)
    raw = architecture.default_inputs(parameters)
    return architecture.preprocess(raw, parameters, checkpoint), architecture.input_specs(
        parameters
    )


@pytest.mark.parametrize("data_type", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("name", TINY)
def test_inputs_have_the_declared_shapes_and_distinct_rows(name, data_type):
    inputs, specs = inputs_of(name, 3, data_type)
    for array, spec in zip(inputs, specs, strict=True):
        assert array.shape == spec.shape
        assert array.dtype == numpy_dtype(spec.dtype)
        assert len(np.unique(array.reshape(3, -1).astype(np.float32), axis=0)) == 3


@pytest.mark.parametrize("name", TINY)
def test_the_same_row_comes_whatever_the_batch_size(name):
    for few, many in zip(inputs_of(name, 2, "fp32")[0], inputs_of(name, 5, "fp32")[0], strict=True):
        assert np.array_equal(few, many[:2])


def test_latents_have_unit_variance():
    latents, timesteps, _ = inputs_of("sd_unet", 4, "fp32")[0]
    assert abs(latents.std() - 1) < 0.05
    assert timesteps.tolist() == [981, 961, 941, 921]


def test_the_way_up_uses_each_output_of_the_way_down_once():
    """Stable Diffusion 1.5: channels into the blocks of the way up, from diffusers' own weights."""
    stages = sd_unet.up_stages(sd_unet.ARCHITECTURE.config("sd-unet"))
    assert [stage.inputs for stage in stages] == [
        (2560, 2560, 2560),
        (2560, 2560, 1920),
        (1920, 1280, 960),
        (960, 640, 640),
    ]
    assert [stage.attention for stage in stages] == [False, True, True, True]
    assert [stage.resample for stage in stages] == [True, True, True, False]


def test_sizes_are_those_of_stable_diffusion():
    counts = {
        name: sum(
            int(np.prod(init.shape)) for init in architecture.tensors(architecture.config(name))
        )
        for name, architecture in (
            ("sd-clip", architectures.get("sd_clip")),
            ("sd-unet", sd_unet.ARCHITECTURE),
            ("sd-vae", sd_vae.ARCHITECTURE),
        )
    }
    # As published: 123 million, 860 million, and 49 million of the autoencoder's 84.
    assert counts == {"sd-clip": 123_060_480, "sd-unet": 859_520_964, "sd-vae": 49_490_199}


def test_a_text_longer_than_the_model_is_refused():
    with pytest.raises(DefinitionError, match="'seq_len' is 78, but the maximum is 77"):
        architectures.get("sd_clip").input_specs(
            {"model_name": "sd-clip", "batch_size": 1, "seq_len": 78, "data_type": "fp32"}
        )


@pytest.mark.parametrize(
    "name",
    [
        "SD_CLIP_TINY_FP32_{}_32XI32_BATCH1",
        "SD_UNET_BF16_{}_4X64X64XBF16_BATCH2",
        "SD_VAE_FP16_{}_4X64X64XF16_BATCH8",
        "WHISPER_39M_FP32_{}_80X3000XF32_BATCH1",
    ],
)
def test_cases_of_both_frameworks_share_their_workload(name):
    cases = catalog.all_benchmarks()
    found = [
        catalog.select(
            cases, name=f"models/{name.format(framework)}/inputs/INPUT_DATA_MODEL_DEFAULT"
        )
        for framework in ("PT", "JAX")
    ]
    [pt], [jax] = found
    assert workload_of(pt) == workload_of(jax)
