"""Stable Diffusion in PyTorch, from text to picture: networks of transformers and diffusers.

The loop over the steps is ours: diffusers' pipeline also tokenizes, checks for unsafe content and
shows a progress bar, and its schedulers keep their tables in float32.
"""

from collections.abc import Mapping
from typing import Any

import diffusers
import torch
import transformers

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import checkpoints, shared_model
from openxla.benchmark.models.architectures import sd_pipeline, sd_unet
from openxla.benchmark.models.pt.sd_unet import TimestepEmbedding
from openxla.benchmark.models.pt.tensors import as_tensor, at_least_float32, load_weights


class SdPipelineModel(torch.nn.Module, shared_model.ArchitectureModel):
    """Inputs: input_ids and negative_ids, int32[batch, seq], and latents [batch, 4, size, size].

    Output: pixels [batch, 3, height, width].
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.set_architecture(sd_pipeline.ARCHITECTURE, parameters)
        config = self.architecture.config(str(parameters["model_name"]))
        self.text_encoder, self.unet, self.vae = _networks(config)
        tensors = checkpoints.load_tensors(self.architecture, self.checkpoint)
        load_weights(self, tensors, str(parameters["data_type"]))
        # Not weights, so not of the model's type: they stay float64.
        self.text_encoder.embeddings.position_ids = torch.nn.Buffer(
            torch.arange(config["text_encoder"]["max_position_embeddings"])[None], persistent=False
        )
        self.unet.time_proj = TimestepEmbedding(sd_unet.timestep_frequencies(config["unet"]))
        steps = [[step.timestep, step.keep, step.add] for step in sd_pipeline.steps(config)]
        self.steps = torch.nn.Buffer(torch.tensor(steps, dtype=torch.float64), persistent=False)
        self.guidance_scale: float = config["guidance_scale"]
        self.scaling_factor: float = config["scaling_factor"]
        self.eval().requires_grad_(False)

    def encode(self, input_ids: torch.Tensor) -> torch.Tensor:
        """int32[batch, seq] -> [batch, seq, hidden]."""
        hidden: torch.Tensor = self.text_encoder(input_ids=input_ids).last_hidden_state
        return hidden

    def denoise(
        self, latents: torch.Tensor, step: torch.Tensor, text: torch.Tensor
    ) -> torch.Tensor:
        """Takes one step.

        Args:
          latents: [batch, 4, size, size].
          step: timestep, factor of the latents, factor of the noise: float64[3].
          text: [2 batch, seq, hidden], negative prompt first.

        Returns:
          The next latents; guidance and sum are at least float32.
        """
        wide = at_least_float32(latents.dtype)
        timestep, keep, add = step.to(wide)
        noise = self.unet(
            torch.cat([latents, latents]),
            timestep.expand(2 * latents.shape[0]),
            text,
            return_dict=False,
        )[0]
        avoided, wanted = noise.to(wide).chunk(2)
        noise = avoided + self.guidance_scale * (wanted - avoided)
        return (keep * latents.to(wide) + add * noise).to(latents.dtype)

    def decode(self, latents: torch.Tensor) -> torch.Tensor:
        """[batch, 4, size, size] -> pixels [batch, 3, height, width]."""
        wide = latents.to(at_least_float32(latents.dtype)) / self.scaling_factor
        pixels: torch.Tensor = self.vae.decode(wide.to(latents.dtype), return_dict=False)[0]
        return pixels

    # A loop over dozens of steps must not be unrolled into one program: `torch.compile` skips this
    # frame, and compiles `encode`, `denoise` and `decode` once.
    @torch.compiler.disable(recursive=False)  # type: ignore[untyped-decorator]  # torch's own
    def generate(
        self, input_ids: torch.Tensor, negative_ids: torch.Tensor, latents: torch.Tensor
    ) -> torch.Tensor:
        """Makes a picture for each row."""
        text = self.encode(torch.cat([negative_ids, input_ids]))
        for step in self.steps.unbind():
            latents = self.denoise(latents, step, text)
        return self.decode(latents)

    def forward(self, input_ids: Any, negative_ids: Any, latents: Any) -> Any:
        """Returns the pixels."""
        return self.generate(as_tensor(input_ids), as_tensor(negative_ids), as_tensor(latents))


def _networks(config: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Returns the text encoder, the denoiser and the picture decoder, without weights."""
    # Shapes only, because random weights would be overwritten at once.
    with torch.device("meta"):
        text_encoder = transformers.CLIPTextModel(
            transformers.CLIPTextConfig(**config["text_encoder"])
        )
        unet = diffusers.UNet2DConditionModel.from_config(config["unet"])
        vae = diffusers.AutoencoderKL.from_config(config["vae"])
    # The picture encoder is unused, and would cost load time and memory.
    del vae.encoder, vae.quant_conv
    return text_encoder, unet, vae


create_model = shared_model.creator(sd_pipeline.ARCHITECTURE, SdPipelineModel)


if __name__ == "__main__":
    shared_model.run_once(create_model, **sd_pipeline.ARCHITECTURE.example)
