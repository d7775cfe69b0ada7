"""Pipelines: what a definition may leave out, shapes, steps, identities; without a framework."""

import math

import numpy as np
import pytest

from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.models.architectures import sd_pipeline
from openxla.benchmark.models.preprocessing import numpy_dtype
from openxla.benchmark.workloads import generated_tokens, workload_of

STABLE_DIFFUSION = {
    "model_name": "runwayml/stable-diffusion-v1-5",
    "batch_size": 2,
    "seq_len": 64,
    "data_type": "bf16",
}
TINY = {"model_name": "sd-pipeline-tiny", "batch_size": 3, "seq_len": 16, "data_type": "fp16"}
GPT2 = {"model_name": "gpt2", "batch_size": 1, "data_type": "fp32"}


def case_of(name):
    [case] = catalog.select(
        catalog.all_benchmarks(), name=f"models/{name}/inputs/INPUT_DATA_MODEL_DEFAULT"
    )
    return case


def shapes(specs):
    return [str(spec) for spec in specs]


def test_gpt2_has_a_pipelines_lengths_where_none_are_given():
    architecture = architectures.get("gpt2_pipeline")
    assert shapes(architecture.input_specs(GPT2)) == ["1x4xi32"]
    assert shapes(architecture.output_specs(GPT2)) == ["1x200xi32", "1x200x50257xf32"]
    assert architecture.label(GPT2) == "pipeline-gpt2-fp32-1x4xi32-200new"
    given = {**GPT2, "max_new_tokens": 8}
    assert shapes(architecture.output_specs(given)) == ["1x8xi32", "1x8x50257xf32"]


def test_gpt2s_prompts_have_four_tokens_and_differ(tmp_path):
    architecture = architectures.get("gpt2_pipeline")
    for name, source in architecture.checkpoint_files().items():
        (tmp_path / name).write_bytes(source.read_bytes())
    given = {**GPT2, "model_name": "gpt2-tiny", "batch_size": 3, "max_new_tokens": 8}
    [ids] = architecture.preprocess(architecture.default_inputs(given), given, tmp_path)
    assert ids.shape == (3, 4)
    assert len(np.unique(ids, axis=0)) == 3


def test_gpt2s_pipeline_shares_its_checkpoint_with_gpt2():
    identities = {
        checkpoints.identity(architectures.get(name), GPT2) for name in ("gpt2", "gpt2_pipeline")
    }
    assert len(identities) == 1


@pytest.mark.parametrize(
    "name",
    [
        "GPT2LMHEAD_PIPELINE_{}_1X4XI32",
        "GPT2LMHEAD_PIPELINE_TINY_{}_4X4XI32",
        "SD_PIPELINE_FP16_{}_64XI32_BATCH8",
        "SD_PIPELINE_TINY_BF16_{}_16XI32_BATCH1",
    ],
)
def test_all_frameworks_share_a_workload(name):
    workloads = {workload_of(case_of(name.format(part))).id for part in ("PT", "JAX", "TF")}
    assert len(workloads) == 1


def test_generated_tokens_are_known_of_gpt2_alone():
    tokens = generated_tokens(case_of("GPT2LMHEAD_PIPELINE_JAX_1X4XI32"))
    assert str(tokens) == "1x200xi32"
    assert generated_tokens(case_of("SD_PIPELINE_FP32_JAX_64XI32_BATCH1")) is None


def test_stable_diffusion_makes_pictures_of_its_own_size():
    architecture = sd_pipeline.ARCHITECTURE
    assert shapes(architecture.input_specs(STABLE_DIFFUSION)) == [
        "2x64xi32",
        "2x64xi32",
        "2x4x64x64xbf16",
    ]
    assert shapes(architecture.output_specs(STABLE_DIFFUSION)) == ["2x3x512x512xbf16"]
    assert architecture.label(STABLE_DIFFUSION).endswith("-bf16-2x64xi32-50steps")


@pytest.mark.parametrize("model_name", sd_pipeline.ARCHITECTURE.configs)
def test_parts_fit_together(model_name):
    config = sd_pipeline.ARCHITECTURE.config(model_name)
    assert config["text_encoder"]["hidden_size"] == config["unet"]["cross_attention_dim"]
    assert config["unet"]["out_channels"] == config["vae"]["latent_channels"]
    scale = 2 ** (len(config["vae"]["block_out_channels"]) - 1)
    assert config["vae"]["sample_size"] == scale * config["unet"]["sample_size"]


def test_one_checkpoint_holds_the_tensors_of_all_parts():
    config = sd_pipeline.ARCHITECTURE.config("sd-pipeline-tiny")
    names = [init.name for init in sd_pipeline.ARCHITECTURE.tensors(config)]
    assert len(set(names)) == len(names)
    assert {name.partition(".")[0] for name in names} == {"text_encoder", "unet", "vae"}
    for part, architecture in sd_pipeline.PARTS.items():
        own = {init.name for init in architecture.tensors(config[part])}
        assert own == {
            name.removeprefix(f"{part}.") for name in names if name.startswith(f"{part}.")
        }


def test_inputs_have_the_declared_shapes_and_distinct_rows():
    architecture = sd_pipeline.ARCHITECTURE
    checkpoint = checkpoints.resolve(architecture, TINY)
    inputs = architecture.preprocess(architecture.default_inputs(TINY), TINY, checkpoint)
    for array, spec in zip(inputs, architecture.input_specs(TINY), strict=True):
        assert array.shape == spec.shape
        assert array.dtype == numpy_dtype(spec.dtype)
    ids, avoided, latents = inputs
    assert len(np.unique(ids, axis=0)) == len(np.unique(latents, axis=0)) == 3
    # Nothing to avoid: the marks of a text's begin and end, and padding.
    assert avoided.tolist() == [[2, 3, *[0] * 14]] * 3


def test_a_text_longer_than_the_model_is_refused():
    with pytest.raises(DefinitionError, match="'seq_len' is 78, but the maximum is 77"):
        sd_pipeline.ARCHITECTURE.input_specs({**STABLE_DIFFUSION, "seq_len": 78})


def test_steps_go_from_noise_to_picture():
    steps = sd_pipeline.steps(sd_pipeline.ARCHITECTURE.config(STABLE_DIFFUSION["model_name"]))
    assert [step.timestep for step in steps] == list(range(981, 0, -20))
    assert all(step.keep > 1 and step.add < 0 for step in steps)
    # Were the noise predicted exactly, the picture would be what is left: its share of the variance
    # grows from 0.6 % to all but the first training step's.
    config = sd_pipeline.ARCHITECTURE.config(STABLE_DIFFUSION["model_name"])
    left = math.prod(1 - beta for beta in list(sd_pipeline._betas(config["scheduler"]))[:982])
    grown = math.prod(step.keep for step in steps)
    assert grown == pytest.approx(math.sqrt((1 - 0.00085) / left), rel=1e-12)


def test_a_step_with_the_true_noise_gives_the_less_noisy_latents():
    config = sd_pipeline.ARCHITECTURE.config("sd-pipeline-tiny")
    left = np.cumprod([1 - beta for beta in sd_pipeline._betas(config["scheduler"])])
    picture, noise = 0.7, -1.3
    first, second, *_ = sd_pipeline.steps(config)

    def noisy(timestep):
        return math.sqrt(left[timestep]) * picture + math.sqrt(1 - left[timestep]) * noise

    got = first.keep * noisy(first.timestep) + first.add * noise
    assert got == pytest.approx(noisy(second.timestep), rel=1e-12)
