"""Tiny models with trained weights, and the task that each was trained for.

One folder per model, made by `scripts/train_tiny.py`: weights in bfloat16, which every data type
represents exactly; held-out examples; and the float64 model's results on them. They express the
cost of fewer bits in familiar terms, e.g. how many of 400 digits are recognised.
"""

import functools
import itertools
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from openxla.benchmark.def_types import DefinitionError, Parameters
from openxla.benchmark.files import sha256_of
from openxla.benchmark.models.architectures.base import Architecture, Arrays

if TYPE_CHECKING:  # listing tasks needs no numpy
    import numpy as np
    import numpy.typing as npt

FOLDER = Path(__file__).parent / "trained"
WEIGHTS, EXAMPLES, TASK = "model.safetensors.xz", "examples.npz", "task.json"
KIND = "trained"

Metric: TypeAlias = Literal["top-1", "perplexity"]


@attrs.frozen(kw_only=True)
class Task:
    """The task of a trained model.

    Attributes:
      name: short description.
      metric: `top-1` (share of correctly classified examples) or `perplexity` (exponential of the
        mean loss per token).
      source: source of the data, with their licence.
      reference: result of the float64 model.
      most_lost: acceptable loss of a program: a difference of shares, or the relative increase of a
        perplexity. It does not affect verdicts, but larger losses are reported.
      folder: folder of weights and examples.
    """

    name: str
    metric: Metric
    source: str
    reference: float
    most_lost: float
    folder: Path

    @functools.cached_property
    def examples(self) -> "dict[str, npt.NDArray[Any]]":
        """The held-out examples, and the float64 model's results.

        Pictures uint8[n, 8, 8] up to 16, or tokens uint16[n, seq], with `lengths` if rows are
        padded; `labels` and `predicted`, or `losses` of each row; `head` [classes, hidden] and
        `bias` if classes are read from hidden states. Names that begin with `learned_` hold 64
        training examples, to calibrate quantisation.
        """
        import numpy as np

        with np.load(self.folder / EXAMPLES) as file:
            return {name: file[name] for name in file.files}

    def batches(self, architecture: Architecture, parameters: Parameters) -> Iterator[Arrays]:
        """Yields the examples as inputs of a model, without an incomplete last batch."""
        return self._batches(architecture, parameters, "")

    def calibration(
        self, architecture: Architecture, parameters: Parameters, count: int
    ) -> Iterator[Arrays]:
        """Yields `count` inputs from the training examples, repeating them if necessary."""
        learned = list(self._batches(architecture, parameters, "learned_"))
        return itertools.islice(itertools.cycle(learned), count)

    def _batches(
        self, architecture: Architecture, parameters: Parameters, which: str
    ) -> Iterator[Arrays]:
        import numpy as np

        from openxla.benchmark.models.preprocessing import numpy_dtype

        arrays = self.examples
        inputs: list[npt.NDArray[Any]]
        if f"{which}images" in arrays:
            inputs = [pixels_of(arrays[f"{which}images"])]
        else:
            inputs = [arrays[f"{which}tokens"]]
            if "lengths" in arrays:
                places = np.arange(inputs[0].shape[1])
                inputs.append(places < arrays[f"{which}lengths"][:, None])
        specs = architecture.input_specs(parameters)
        rows = specs[0].shape[0]
        for start in range(0, len(inputs[0]) - rows + 1, rows):
            batch = tuple(
                value[start : start + rows].astype(numpy_dtype(spec.dtype))
                for value, spec in zip(inputs, specs, strict=True)
            )
            if any(value.shape != spec.shape for value, spec in zip(batch, specs, strict=True)):
                raise DefinitionError(f"the examples of {self.name} do not have the model's shape")
            yield batch


def pixels_of(images: "npt.NDArray[np.uint8]") -> "npt.NDArray[np.float32]":
    """Returns grey pictures [n, 8, 8] up to 16 as pixels f32[n, 3, 32, 32] in [-1, 1]."""
    import numpy as np

    large = np.repeat(np.repeat(images, 4, axis=1), 4, axis=2).astype(np.float32)
    return np.repeat((large / 8 - 1)[:, None], 3, axis=1)


def task_of(parameters: Parameters) -> Task | None:
    """Returns the task of a model; None if it is not trained."""
    return _task(str(parameters["model_name"])) if parameters.get("checkpoint") == KIND else None


def folder_of(model_name: str) -> Path:
    """Returns the folder of a model's weights.

    Raises:
      DefinitionError: the weights are missing.
    """
    if not (FOLDER / model_name / WEIGHTS).is_file():
        known = ", ".join(sorted(path.parent.name for path in FOLDER.glob(f"*/{WEIGHTS}")))
        raise DefinitionError(f"no trained weights for {model_name!r}; choices are {known}")
    return FOLDER / model_name


@functools.lru_cache(maxsize=32)
def weights_digest(model_name: str) -> str:
    """Returns the sha256 of a model's weights, as shipped."""
    return sha256_of(folder_of(model_name) / WEIGHTS)


def unpack(model_name: str, target: Path) -> None:
    """Writes a model's weights as a safetensors file."""
    target.write_bytes(lzma.decompress((folder_of(model_name) / WEIGHTS).read_bytes()))


@functools.lru_cache(maxsize=32)
def _task(model_name: str) -> Task:
    folder = folder_of(model_name)
    facts = json.loads((folder / TASK).read_text(encoding="utf-8"))
    return Task(
        name=facts["task"],
        metric=facts["metric"],
        source=facts["source"],
        reference=facts["reference"],
        most_lost=facts["most_lost"],
        folder=folder,
    )
