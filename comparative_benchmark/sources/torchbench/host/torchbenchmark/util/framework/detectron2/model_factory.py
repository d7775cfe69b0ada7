"""Folders of detectron2's detectors."""

from importlib.util import find_spec
from typing import Any

from ...model import BenchmarkModel


class Detectron2Model(BenchmarkModel):
    """Refuses with the missing part: detectron2, or its weights and pictures, is on no index."""

    DETECTRON2_MODEL = True
    DEFAULT_TRAIN_BSIZE = 1
    DEFAULT_EVAL_BSIZE = 1

    def __init__(
        self, variant: str, test: str, device: str, batch_size: int | None = None, **_: Any
    ) -> None:
        super().__init__(test=test, device=device, batch_size=batch_size)
        if find_spec("detectron2") is None:
            raise NotImplementedError(
                "needs package detectron2, which is not on a package index; build it from its "
                "repository"
            )
        raise NotImplementedError(
            f"network: {variant} needs weights from detectron2's model zoo and COCO images, "
            "which TorchBench keeps in its own store"
        )
