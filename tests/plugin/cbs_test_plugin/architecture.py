"""A toy: two matrices, a tanh between them; square output, so transposing keeps the shape."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from openxla.benchmark import testdata
from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models.architectures.base import Architecture, TensorInit

SIZE = 8


class Toy(Architecture):
    name = "toy"
    version = 1
    configs = {"toy": {"size": SIZE}}

    def tensors(self, config: Any) -> Iterable[TensorInit]:
        for name in ("first", "second"):
            yield TensorInit(name=name, shape=(SIZE, SIZE), stddev=SIZE**-0.5)

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        return (TensorSpec(shape=(SIZE, SIZE), dtype="f32"),)

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        return (TensorSpec(shape=(SIZE, SIZE), dtype="f32"),)

    def default_input_files(self) -> tuple[Path, ...]:
        return (testdata.DEFAULT_IMAGE,)

    def default_inputs(self, parameters: Parameters) -> Any:
        return testdata.load_image()

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Any:
        pixels = raw_input[:SIZE, :SIZE, 0].astype(np.float32)
        return ((pixels - pixels.mean()) / pixels.std(),)


ARCHITECTURE = Toy()
