"""Options of TorchBench's runner, as folders of late 2021 parse them: at their defaults."""

import argparse
from typing import Any


def parse_args(model: Any, *_: Any) -> argparse.Namespace:
    """Returns the options; half precision is for GPUs, and no option reaches a folder here."""
    return argparse.Namespace(device=model.device, jit=model.jit, eval_fp16=False)


def apply_args(*_: Any) -> None:
    """Does not change the model."""
