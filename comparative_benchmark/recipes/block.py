"""block-<size>: square blocks of weights are left out."""

from typing import Any

from comparative_benchmark.recipes.registry import Parameter, Recipe

RECIPE = Recipe(
    name="block",
    description="weights in square blocks of the given size; all-zero blocks are skipped",
    parameters=(Parameter(name="size"),),
    min_sqnr_db=lambda _: 5.0,
    by_backend={"pt_inductor": f"{__name__}:with_torchao"},
)


def with_torchao(size: int) -> tuple[Any, str]:
    """Returns torchao's configuration, and the class of weights that it makes.

    Raises:
      NotImplementedError: there is no such GPU.
    """
    import torch

    if not torch.cuda.is_available():
        raise NotImplementedError("block-sparse products need Triton kernels for GPUs")
    from torchao.sparsity.sparse_api import BlockSparseWeightConfig

    return BlockSparseWeightConfig(blocksize=size), "BlockSparseTensor"
