"""Seeds, as folders set them, and TorchBench's decisions by a folder's name.

Its other lists (deterministic algorithms, tolerances, optimizers, folders that no accuracy check is
for) belong to its accuracy check. Outputs are judged here against a float64 run instead.
"""

import random

import numpy as np
import torch

SEED = 1337
# Folders that compute gradients in inference.
USE_GRAD_IN_INFERENCE = ["maml"]
# Folders of 2021 whose scripted module cannot be compared with an unoptimized run of itself.
NOT_COMPARED_WITHOUT_JIT = frozenset(
    {
        *("attention_is_all_you_need_pytorch", "BERT_pytorch", "demucs", "moco", "Super_SloMo"),
        "yolov3",
    }
)


def pick_grad(name: str, is_training: bool) -> torch.set_grad_enabled:
    """Returns the context of a folder's test: with gradients, or without them."""
    return torch.set_grad_enabled(is_training or name in USE_GRAD_IN_INFERENCE)


def set_random_seed() -> None:
    """Sets the seeds of Python, NumPy and PyTorch."""
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002  # folders draw from this generator
    torch.manual_seed(SEED)


def fix_torch_seed() -> None:
    """Makes every `torch.manual_seed` of this process set the same seed, ignoring its argument."""
    real = torch.random.default_generator.manual_seed

    def manual_seed(*_: object, **__: object) -> torch.Generator:
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(SEED)
        return real(SEED)

    torch.manual_seed = manual_seed
