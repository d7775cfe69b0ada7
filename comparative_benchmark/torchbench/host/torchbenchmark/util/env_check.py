"""Seeds, as folders set them."""

import random

import numpy as np
import torch

SEED = 1337


def set_random_seed() -> None:
    """Sets the seeds of Python, NumPy and PyTorch."""
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002  # folders draw from this generator
    torch.manual_seed(SEED)


def fix_torch_seed() -> None:
    """Has every `torch.manual_seed` of this process set the one seed, whatever it is given."""
    real = torch.random.default_generator.manual_seed

    def manual_seed(*_: object, **__: object) -> torch.Generator:
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(SEED)
        return real(SEED)

    torch.manual_seed = manual_seed
