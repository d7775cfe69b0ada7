"""Base class of backends whose runtime executes exported programs with blocking calls.

A model that generates is two programs, prefill and decode; any other is one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.backends.api import (
    Array,
    Backend,
    BackendContext,
    GenerationParts,
    UnsupportedError,
)
from comparative_benchmark.backends.resident_programs import (
    GenerationLoop,
    GenerationPlan,
    LoopParts,
    Program,
    SingleProgram,
)

SYNCHRONOUS = "synchronous: the host waits inside the call"


class ResidentBackend(Backend):
    """Runs programs that a subclass's `compile` has bound to resident buffers."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._model: Any = None
        self._arrays: tuple[Array, ...] = ()
        self._paths: Sequence[Path] = ()
        self._bound: Any = None
        self._run: Any = None

    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        """Keeps model and inputs for `compile`: there is no device before there is a program."""
        self._model, self._arrays = model, tuple(inputs)

    def dispatch(self) -> Any:
        """Runs the program, which returns when its outputs are complete."""
        return self._run()

    def synchronize(self, outputs: Any) -> None:
        """Does nothing: `dispatch` is synchronous."""

    def fetch(self, outputs: Any) -> list[Any]:
        """Copies the outputs to the host."""
        return list(self._bound.fetch(outputs))

    def replace_inputs(self, inputs: Sequence[Array]) -> bool:
        """Writes them into the program's buffers."""
        self._arrays = tuple(inputs)
        self._bound.replace_inputs(inputs)
        return True

    def poison_outputs(self) -> None:
        """Fills the output buffers."""
        self._bound.poison_outputs()

    def run_with(self, inputs: Sequence[Array]) -> list[Any] | None:
        """Generates along given tokens; None for a model that is one program."""
        if not isinstance(self._bound, GenerationLoop):
            return None
        return list(self._bound.run_with(inputs))

    def generation_parts(self) -> GenerationParts:
        """Returns the two programs of a model that generates.

        Raises:
          UnsupportedError: the model is one program.
        """
        if not isinstance(self._bound, GenerationLoop):
            return super().generation_parts()
        return LoopParts(self._bound)

    def release(self) -> None:
        """Releases the programs."""
        self._bound = self._run = None

    def _take_model(self) -> Any:
        """Returns and forgets the model: its weights would count as the program's memory."""
        model, self._model = self._model, None
        return model

    def _bind(self, programs: Sequence[Program], plan: GenerationPlan | None) -> None:
        """Writes the inputs (`h2d`); `dispatch` then runs these programs.

        Raises:
          UnsupportedError: allocated outputs were requested for a model that generates.
        """
        allocates = self.output_mode() == "allocated"
        if allocates and plan is not None:
            raise UnsupportedError(
                "outputs of a model that generates cannot be allocated here: the steps pass their "
                "state on in two sets of buffers, which are bound"
            )
        with self.context.phase("h2d"):
            if plan is None:
                self._bound = SingleProgram(programs[0], self._arrays, allocates=allocates)
            else:
                self._bound = GenerationLoop(programs[0], programs[1], plan, self._arrays)
        self._run = self._bound.run

    def _only_path(self, runtime: str) -> Path:
        """Returns the program's file, for a profiler.

        Raises:
          UnsupportedError: the model generates: its two programs alternate, each from the state
            that the other left.
        """
        if len(self._paths) != 1:
            raise UnsupportedError(
                f"a model that generates is two programs here, which {runtime} profiles apart: "
                "profile a case that scores its input"
            )
        return self._paths[0]
