"""Stable Diffusion 1 from text to picture: tokens and noise in, pixels out.

Rombach et al. 2021 (arXiv:2112.10752): the text encoder runs once, the denoiser once per step, on
two rows per picture (classifier-free guidance, Ho and Salimans 2022, arXiv:2207.12598), the picture
decoder once. Steps follow DDIM without noise (Song et al. 2020, arXiv:2010.02502), so the picture
only depends on the inputs.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from openxla.benchmark import testdata
from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models.architectures import diffusion, sd_clip, sd_unet, sd_vae
from openxla.benchmark.models.architectures.base import (
    Architecture,
    Arrays,
    TensorInit,
    integer,
    tensor,
)
from openxla.benchmark.models.architectures.text import TextArchitecture

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Prefix of each part's tensors in the checkpoint -> architecture of the part.
PARTS: Mapping[str, Architecture] = {
    "text_encoder": sd_clip.ARCHITECTURE,
    "unet": sd_unet.ARCHITECTURE,
    "vae": sd_vae.ARCHITECTURE,
}


@attrs.frozen(kw_only=True)
class Step:
    """One step of the denoiser: `latents = keep * latents + add * noise`.

    Attributes:
      timestep: timestep passed to the denoiser.
      keep: factor of the latents.
      add: factor of the predicted noise, including guidance; negative, because noise is removed.
    """

    timestep: int
    keep: float
    add: float


def _config(suffix: str, steps: int) -> Mapping[str, Any]:
    parts = {
        part: architecture.config(f"{architecture.name.replace('_', '-')}{suffix}")
        for part, architecture in PARTS.items()
    }
    # The size that follows from the denoiser's latents.
    scale = 2 ** (len(parts["vae"]["block_out_channels"]) - 1)
    parts["vae"] = {**parts["vae"], "sample_size": scale * parts["unet"]["sample_size"]}
    return {
        "_class_name": "StableDiffusionPipeline",
        **parts,
        "guidance_scale": 7.5,
        "num_inference_steps": steps,
        "scaling_factor": 0.18215,
        "scheduler": {
            "_class_name": "DDIMScheduler",
            "beta_end": 0.012,
            "beta_schedule": "scaled_linear",
            "beta_start": 0.00085,
            "clip_sample": False,
            "num_train_timesteps": 1000,
            "prediction_type": "epsilon",
            "set_alpha_to_one": False,
            "steps_offset": 1,
            "timestep_spacing": "leading",
        },
    }


class SdPipeline(TextArchitecture):
    """Inputs: input_ids and negative_ids, i32[batch, seq], and latents [batch, 4, size, size].

    Output: pixels [batch, 3, height, width], about -1 to 1, from the picture decoder.

    The number of steps and the guidance scale are part of the configuration: they change the
    computation, so cases that differ in them have different identities.
    """

    name = "sd_pipeline"
    version = 1
    configs = {
        "sd-pipeline-tiny": _config("-tiny", 4),
        # diffusers' default number of steps and guidance scale.
        "runwayml/stable-diffusion-v1-5": _config("", 50),
    }

    standard = {"model_name": "runwayml/stable-diffusion-v1-5", "seq_len": 77}
    example = {"model_name": "sd-pipeline-tiny", "seq_len": 16}

    def longest(self, config: Mapping[str, Any]) -> int | None:
        """Returns the text encoder's limit."""
        return sd_clip.ARCHITECTURE.longest(config["text_encoder"])

    def module_name(self, tensor: str, config: Mapping[str, Any]) -> str:
        """Returns the part's name of the tensor, with the part's prefix."""
        part, _, rest = tensor.partition(".")
        return f"{part}.{PARTS[part].module_name(rest, config[part])}"

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """See `Architecture.tensors`; names are the parts' names with a prefix."""
        for part, architecture in PARTS.items():
            for init in architecture.tensors(config[part]):
                yield init._replace(name=f"{part}.{init.name}")

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Tokens of the prompt and of the negative prompt, i32[batch, seq]; latents."""
        tokens, config = self.token_spec(parameters), self.config_of(parameters)
        latents = diffusion.latent_shape(config["unet"], tokens.shape[0], "in_channels")
        return (tokens, tokens, tensor(parameters, *latents))

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Pixels, [batch, 3, height, width]."""
        vae = self.config_of(parameters)["vae"]
        batch = integer(parameters, "batch_size")
        return (tensor(parameters, *diffusion.latent_shape(vae, batch, "out_channels")),)

    def label(self, parameters: Parameters) -> str:
        """Adds the number of steps to the usual label."""
        steps = self.config_of(parameters)["num_inference_steps"]
        return f"{super().label(parameters)}-{steps}steps"

    def default_inputs(self, parameters: Parameters) -> Any:
        """The bundled text, an empty negative prompt, and the seed of the noise."""
        return testdata.load_text(), "", 0

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Makes tokens and latents of unit variance, different ones for each row of the batch.

        The negative prompt is the same for all rows. Padding is not masked, but treated as text.
        """
        from openxla.benchmark.models import preprocessing

        text, avoided, seed = raw_input
        tokens, _, latents = self.input_specs(parameters)
        batch, seq_len = tokens.shape
        ids, _ = self.token_windows(text, parameters, checkpoint)
        noise = diffusion.noise("latents", latents.shape, seed=seed)
        return (
            ids,
            _repeated(avoided, checkpoint / "tokenizer.json", batch, seq_len),
            noise.astype(preprocessing.numpy_dtype(latents.dtype)),
        )


def steps(config: Mapping[str, Any]) -> list[Step]:
    """Returns the steps of the denoiser, starting with the noisiest.

    In float64 for all frameworks: if each computed them in its own type, they would differ in the
    seventh digit. Equation 12 of the DDIM paper for sigma = 0, solved for latents and noise.
    """
    scheduler = config["scheduler"]
    # Share of the picture's variance that remains after each number of training steps.
    left = list(itertools.accumulate((1 - beta for beta in _betas(scheduler)), lambda a, b: a * b))
    stride = scheduler["num_train_timesteps"] // config["num_inference_steps"]
    timesteps = [
        index * stride + scheduler["steps_offset"]
        for index in reversed(range(config["num_inference_steps"]))
    ]
    steps = []
    for timestep in timesteps:
        now = left[timestep]
        before = left[timestep - stride] if timestep >= stride else left[0]
        keep = math.sqrt(before / now)
        add = math.sqrt(1 - before) - keep * math.sqrt(1 - now)
        steps.append(Step(timestep=timestep, keep=keep, add=add))
    return steps


def _betas(scheduler: Mapping[str, Any]) -> Iterator[float]:
    """Yields the variance that each training step adds: linear in the standard deviation."""
    first, last = math.sqrt(scheduler["beta_start"]), math.sqrt(scheduler["beta_end"])
    count = scheduler["num_train_timesteps"]
    for index in range(count):
        yield (first + (last - first) * index / (count - 1)) ** 2


def _repeated(
    text: str, tokenizer_file: Path, batch_size: int, seq_len: int
) -> "npt.NDArray[np.int32]":
    """Returns the tokens of one text, which may be empty, for each row: int32[batch, seq]."""
    import numpy as np
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.enable_truncation(seq_len)
    tokenizer.enable_padding(length=seq_len)
    return np.array([tokenizer.encode(text).ids] * batch_size, np.int32)


ARCHITECTURE = SdPipeline()
