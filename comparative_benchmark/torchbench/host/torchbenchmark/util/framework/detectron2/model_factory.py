"""Folders of detectron2's detectors."""

from typing import Any

from ...model import BenchmarkModel
from ..needs import module


class Detectron2Model(BenchmarkModel):
    """Says what is missing: detectron2, or else its weights and pictures, is on no index."""

    DETECTRON2_MODEL = True
    DEFAULT_TRAIN_BSIZE = 1
    DEFAULT_EVAL_BSIZE = 1

    def __init__(
        self, variant: str, test: str, device: str, batch_size: int | None = None, **_: Any
    ) -> None:
        super().__init__(test=test, device=device, batch_size=batch_size)
        module("detectron2", "this folder")
        raise NotImplementedError(
            f"network: {variant} needs weights of detectron2's model zoo and COCO's pictures, "
            "which TorchBench keeps in a store of its own"
        )
