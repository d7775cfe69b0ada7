"""semi-sparse, also called 2:4: of each four weights the two smallest are left out."""

from typing import Any

from comparative_benchmark.recipes.registry import Recipe
from comparative_benchmark.recipes.rounding import Grid, Rounding

RECIPE = Recipe(
    name="semi-sparse",
    description="the two smallest of every four weights in a row are set to 0 and skipped (2:4)",
    min_sqnr_db=lambda _: 5.0,
    rounding=lambda _: Rounding(weights=Grid("2:4")),
    by_backend={"pt_inductor": f"{__name__}:with_torchao"},
)
ALSO = Recipe(
    name="2:4",
    description="another name for semi-sparse",
    min_sqnr_db=lambda _: 5.0,
    rounding=lambda _: Rounding(weights=Grid("2:4")),
    by_backend={"pt_inductor": f"{__name__}:with_torchao"},
)


def with_torchao() -> tuple[Any, str]:
    """Returns torchao's configuration, and the class of weights that it makes.

    Raises:
      NotImplementedError: there is no such GPU.
    """
    import torch

    if not torch.cuda.is_available():
        raise NotImplementedError("2:4 sparse products need kernels of NVIDIA GPUs")
    from torchao.sparsity.sparse_api import SemiSparseWeightConfig

    return SemiSparseWeightConfig(), "SparseSemiStructuredTensorCUTLASS"
