"""A normal distribution whose values are squashed by tanh, as agents of soft actor-critic draw."""

from typing import Any

import torch
from torch import distributions


class SquashedNormal(distributions.TransformedDistribution):
    """tanh of Normal(loc, scale) (Haarnoja et al. 2018, arXiv:1801.01290, appendix C)."""

    def __init__(
        self, loc: torch.Tensor, scale: torch.Tensor, tanh_transform_clamp: Any = None
    ) -> None:
        self.loc, self.scale = loc, scale
        self.tanh_transform_clamp = tanh_transform_clamp
        self.base_dist = distributions.Normal(loc, scale)
        # With a cache: atanh of a value near 1 would lose most digits.
        tanh = distributions.transforms.TanhTransform(cache_size=1)
        super().__init__(self.base_dist, [tanh])

    @property
    def mean(self) -> torch.Tensor:
        """Tanh of the normal distribution's mean."""
        return torch.tanh(self.loc)
