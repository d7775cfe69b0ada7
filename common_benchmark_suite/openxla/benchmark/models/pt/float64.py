"""Replacements for parts of transformers' models that compute in float32 even in float64 models.

This is intended for 16-bit and float32 models, but would cut the truth, a float64 run, to seven
digits. These replacements support float64 and are otherwise the same.
"""

from collections.abc import Sequence

import torch


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Returns float32 for the 16-bit types, other types unchanged."""
    return torch.promote_types(dtype, torch.float32)


class RmsNorm(torch.nn.Module):
    """Root mean square norm (Zhang and Sennrich 2019, arXiv:1910.07467).

    `around_one`: Gemma scales by 1 + weight before the result is rounded to the model's type; Llama
    scales by the weight after.
    """

    def __init__(self, weight: torch.nn.Parameter, epsilon: float, *, around_one: bool) -> None:
        super().__init__()
        self.weight = weight
        self.epsilon = epsilon
        self.around_one = around_one

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., hidden], same shape and type out."""
        wide = x.to(at_least_float32(x.dtype))
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        if self.around_one:
            return (wide * (1.0 + self.weight.to(wide.dtype))).to(x.dtype)
        return self.weight * wide.to(x.dtype)


class RotaryEmbedding(torch.nn.Module):
    """Cosines and sines of rotary position embedding, from angles per position."""

    def __init__(self, frequencies: Sequence[float]) -> None:
        super().__init__()
        # Kept in float64 and rounded when used, because it is not a weight of the model.
        exact = torch.tensor(frequencies, dtype=torch.float64)
        self.frequencies = torch.nn.Buffer(exact, persistent=False)

    def forward(
        self, x: torch.Tensor, position_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """position_ids [batch, seq] -> two of [batch, seq, head_dim], of the type of x."""
        wide = at_least_float32(x.dtype)
        angles = position_ids[..., None].to(wide) * self.frequencies.to(wide)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)
