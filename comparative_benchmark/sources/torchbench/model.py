"""A model folder as a model of the suite, which a worker loads.

One iteration is the folder's own `eval()` or `train()`. If `eval()` is one call of the module that
`get_module()` returns, on the inputs that it returns, exporters use that module instead.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from comparative_benchmark.backends.api import Array, UnsupportedError
from comparative_benchmark.backends.frameworks.torch_modules import to_numpy
from comparative_benchmark.backends.model_protocols import ForeignModel
from comparative_benchmark.sources.torchbench import state
from comparative_benchmark.sources.torchbench.loading import (
    LoadedFolder,
    Request,
    has_scripted_code,
)
from comparative_benchmark.sources.torchbench.running import Running
from comparative_benchmark.sources.torchbench.state import Widening
from openxla.benchmark.models.second_input import NoSecondInputError, changed
from openxla.benchmark.user_models.inputs import is_float
from openxla.benchmark.user_models.programs.program_model import in_place_of_truth

# If a float64 run differs from the own-type run by more than this, relative to its spread, it
# computes something else, e.g. with other random numbers. The same limit rejects runs of rounded
# weights.
_FURTHEST = 0.2
# At most this many runs of rounded weights; they stop once a run's errors are within this factor of
# the own-type run's. More are needed where rounding decides between two branches.
_ROUGH_RUNS = 5
_ALIKE = 3.0


class NotWidenedError(Exception):
    """The folder cannot be run in float64."""


class FolderModel(ForeignModel):
    """A folder's model, created for one test.

    Attributes:
      module: the folder's module, None if it offers none.
      without_float64: why the last truth is not a float64 run; None if it is.
      not_countable: why its work cannot be counted; None if it can.
    """

    def __init__(self, request: Request) -> None:
        self._folder = LoadedFolder(request)
        self._running = Running(self._folder)
        self.module = self._running.module
        self.replayed = self._running.replayed
        self.without_float64: str | None = None
        # TorchScript operators that create tensors crash the process on fake tensors (PyTorch
        # 2.13).
        scripted = "TorchScript operations cannot be counted"
        self.not_countable = scripted if has_scripted_code() else None
        self._loss: float | None = None
        self._repeats = False

    def generate_default_inputs(self) -> tuple[torch.Tensor, ...]:
        """Returns the folder's own example."""
        return self._running.inputs

    def generate_inputs(self, input_data: str) -> Any:
        """Returns the folder's own example, whatever the input's name."""
        return self.generate_default_inputs()

    def preprocess(self, raw_input: Any) -> tuple[Array, ...]:
        """Copies the inputs: the folder may write to its own."""
        return tuple(to_numpy(value).copy() for value in raw_input)

    def second_inputs(self, *inputs: Array) -> list[Array]:
        """Returns second inputs by the usual rule, if the folder reads the inputs that it returns.

        Raises:
          NoSecondInputError: its outputs do not depend on the tensors of `get_module()`.
        """
        second = [changed(value) for value in inputs]
        before = self._run_on(inputs)
        after = self._run_on(second)
        self._running.write(inputs)
        if _equal(before, after):
            raise NoSecondInputError(
                f"{self._folder.request.test} does not read the inputs that get_module() returns"
            )
        return second

    def forward(self, *inputs: Any) -> tuple[torch.Tensor, ...]:
        """Returns the module's outputs on inputs, for exporters.

        Raises:
          UnsupportedError: the module does not represent an iteration.
        """
        if reason := self._running.why_not_function:
            raise UnsupportedError(f"cannot export the folder's module: {reason}")
        return self._running.function(*inputs)

    def reside(self, inputs: Sequence[Array]) -> tuple[torch.Tensor, ...]:
        """See `ForeignModel.reside`; returns the folder's own tensors."""
        self._running.write(inputs)
        self._running.watch()
        return self._running.inputs

    def timed(self, *inputs: Any) -> Any:
        """Runs one iteration of the folder's test."""
        return self._running.run()

    def outputs_of(self, handle: Any) -> tuple[torch.Tensor, ...]:
        """Returns outputs of inference; for training, gradients and weights after two steps.

        Each step changes the start of the next one. So two more steps are verified, from the
        folder's initial weights, with the timed program.
        """
        self._loss = self._running.loss_of(handle)
        return self._running.outputs_of(handle)

    def compile_in_place(self, compile_part: Callable[[Callable[..., Any]], Any]) -> None:
        """See `ForeignModel.compile_in_place`."""
        self._running.compile_in_place(compile_part)

    def judged_by(self, inputs: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """Returns a float64 run of another object of the class, and a run in its own type.

        If the folder cannot be widened, the run in its own type is the truth, and a run of slightly
        rounded weights and inputs is the reference, which shows the effect of rounding alone. The
        same applies if the folder's own type is float64: a wider run would be the same run, and its
        error of zero would allow no other order of operations.

        Raises:
          UnsupportedError: its output differs each time, even from the same state, or is constant
            or NaN.
        """
        if self._running.constant:
            raise UnsupportedError(
                f"{self._folder.request.test} returns only constants, so its output cannot be "
                "verified"
            )
        own = self._run_on(inputs)
        if not all(map(_is_finite, own)):
            raise UnsupportedError(
                f"{self._folder.request.test} itself returns NaN or infinity, so its output cannot "
                "be verified"
            )
        if self._running.replayed and not self._repeats:
            if not _equal(own, self._run_on(inputs)):
                raise UnsupportedError(
                    f"{self._folder.request.test} returns a different output each time, even with "
                    "the same weights and seeds, so its output cannot be verified"
                )
            self._repeats = True
        truth: list[Array] | None
        try:
            truth = self._wide(inputs, own)
            self.without_float64 = None
        except NotWidenedError as error:
            self.without_float64, truth = str(error), None
        if truth is not None:
            return truth, self._furthest(inputs, own, truth)
        # Not inside the handler, whose error holds the object that could not be widened.
        rough = self._rough(state.roughened(inputs))
        if max(_relative_errors(rough, own), default=0.0) > _FURTHEST:
            raise UnsupportedError(
                f"rounding errors dominate the output of {self._folder.request.test}, and there is "
                f"no float64 truth ({self.without_float64}), so the output cannot be verified"
            )
        return in_place_of_truth(own), rough

    def notes(self) -> dict[str, Any]:
        """Returns how the folder was run."""
        test = self._folder.request.test
        notes = {
            "protocol": self._folder.protocol,
            "timed": f"the folder's {test}",
            "verified": "steps from the first state" if self._running.replayed else "its output",
        }
        return {**notes, **({"loss": self._loss} if self._loss is not None else {})}

    def _run_on(self, inputs: Sequence[Array]) -> list[Array]:
        return _outputs(self._running, inputs)

    def _wide(self, inputs: Sequence[Array], own: Sequence[Array]) -> list[Array]:
        before = torch.get_default_dtype()
        try:
            wide = Running(self._folder)
            wide.widen()
            torch.set_default_dtype(torch.float64)
            with Widening():
                truth = _outputs(wide, inputs)
        except Exception as error:
            raise NotWidenedError(f"{type(error).__name__}: {error}"[:300]) from error
        finally:
            torch.set_default_dtype(before)
        if len(truth) != len(own):
            raise NotWidenedError(f"{len(truth)} outputs in float64, expected {len(own)}")
        for place, (expected, value) in enumerate(zip(truth, own, strict=True)):
            if expected.shape != value.shape:
                raise NotWidenedError(f"output {place} has a different shape in float64")
            if is_float(value) and expected.dtype != np.float64:
                raise NotWidenedError(f"output {place} is {expected.dtype}, not float64")
            if not _is_finite(expected):
                raise NotWidenedError(f"output {place} contains NaN or infinity in float64")
            if _relative_error(value, expected) > _FURTHEST:
                raise NotWidenedError(f"output {place} is computed differently in float64")
        if _are_float64(own) and _equal(own, truth):
            raise NotWidenedError("the model already computes in float64, and no wider type exists")
        return truth

    def _rough(self, inputs: Sequence[Array], seed: int = 0) -> list[Array]:
        rough = Running(self._folder)
        rough.roughen(seed)
        return _outputs(rough, inputs)

    def _furthest(
        self, inputs: Sequence[Array], own: Sequence[Array], truth: Sequence[Array]
    ) -> list[Array]:
        """Returns, output by output, the furthest run: a single one may be near the truth by luck.

        Inputs are not changed: a number that is used as an index would become another one. But
        where the folder computes in float64 itself, no other run would show any rounding.
        """
        off = _relative_errors(own, truth)
        furthest = list(own)
        for seed in range(_ROUGH_RUNS):
            alike = True
            rough = self._rough(inputs, seed)
            for place, error in enumerate(_relative_errors(rough, truth)):
                alike = alike and off[place] / _ALIKE <= error <= off[place] * _ALIKE
                if off[place] < error <= _FURTHEST:
                    off[place], furthest[place] = error, rough[place]
            if alike:
                break
        if any(error == 0.0 and _are_float64([v]) for error, v in zip(off, own, strict=True)):
            rough = self._rough(state.roughened(inputs))
            for place, error in enumerate(_relative_errors(rough, truth)):
                if off[place] < error <= _FURTHEST:
                    furthest[place] = rough[place]
        return furthest


def create_model(
    *,
    folder: str,
    test: str,
    batch_size: int | None = None,
    packages: str | None = None,
    jit: bool = False,
    **_: Any,
) -> FolderModel:
    """Returns the model of a folder; see `loading.Request`."""
    return FolderModel(
        Request(
            folder=Path(folder),
            test=test,
            batch_size=batch_size,
            packages=Path(packages) if packages else None,
            jit=jit,
        )
    )


def _outputs(running: Running, inputs: Sequence[Array]) -> list[Array]:
    running.write(inputs)
    running.watch()
    with running.refusing():
        handle = () if running.replayed else running.run()
        return [to_numpy(value).copy() for value in running.outputs_of(handle)]


def _relative_errors(values: Sequence[Array], expected: Sequence[Array]) -> list[float]:
    """Returns the relative error of each output; infinity if number or shapes differ."""
    if [value.shape for value in values] != [value.shape for value in expected]:
        return [np.inf] * len(expected)
    return list(map(_relative_error, values, expected))


def _relative_error(value: Array, expected: Array) -> float:
    """Returns the root mean square error in spreads; zero if verification needs none."""
    if expected.dtype.kind != "f" or not _is_finite(expected):
        return 0.0
    if not np.isfinite(value).all():
        return np.inf
    wide: npt.NDArray[np.float64] = expected.astype(np.float64)
    spread = float(np.std(wide))
    rmse = float(np.sqrt(np.mean(np.square(value.astype(np.float64) - wide))))
    return rmse / spread if spread else 0.0


def _is_finite(value: Array) -> bool:
    return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())


def _are_float64(values: Sequence[Array]) -> bool:
    dtypes = [value.dtype for value in values if value.dtype.kind == "f"]
    return bool(dtypes) and all(dtype == np.float64 for dtype in dtypes)


def _equal(some: Sequence[Array], others: Sequence[Array]) -> bool:
    if [value.shape for value in some] != [value.shape for value in others]:
        return False
    return all(one.tobytes() == other.tobytes() for one, other in zip(some, others, strict=True))
