"""In a worker: a `.pt2` file written by `torch.export.save`."""

import contextlib
import copy
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_unflatten

from openxla.benchmark.artifacts.workload_store import TruthCheck
from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.preprocessing import numpy_dtype
from openxla.benchmark.models.pt.tensors import as_tensor
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.user_models.inputs import Array, cross_checked, is_float
from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.programs import torch_archives
from openxla.benchmark.user_models.programs.program_model import (
    SEED,
    NotWidenedError,
    ProgramModel,
    in_place_of_truth,
    rounded,
    rounding_of,
)
from openxla.benchmark.user_models.programs.signature import Signature
from openxla.benchmark.user_models.python_files.in_torch import as_array, plain
from openxla.benchmark.user_models.python_files.loading import error_line, refusing

TYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "i1",
    torch.uint8: "u8",
}
NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16})
# With this variable set, `torch.load` never runs code from a file.
_NO_PICKLES = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


class RunnableProgram(torch.nn.Module, ProgramModel):
    """A program that PyTorch runs; its outputs are the tensors in the return value.

    Attributes:
      module: the module to call.
    """

    module: Any

    def forward(self, *inputs: Any) -> Any:
        """Runs the program."""
        return plain(self._run(self.module, inputs))

    def try_out(self, *inputs: Array) -> None:
        """Checks the inputs, and that the program is deterministic and free of side effects.

        Raises:
          UserModelError: the program takes other inputs, or cannot be verified.
        """
        super().try_out(*inputs)
        self.run_twice(inputs)

    def outputs_of(self, inputs: Sequence[Array], *, seed: int) -> list[Array]:
        """Returns the outputs of an eager run."""
        torch.manual_seed(seed)
        return self._arrays(self.module, inputs)

    def truth_and_reference(self, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
        """See `ProgramModel`; by PyTorch, operator by operator."""
        own = self._arrays(self.module, inputs)
        self.without_float64, truth = None, None
        try:
            truth = self._in_float64(self.module, inputs)
            self.note_check(self._check(inputs, truth))
        except NotWidenedError as error:
            self.without_float64 = f"the program has no float64 run: {error}"
        if truth is None or self.without_float64 is not None:
            rough = self.copied()
            _round(rough)
            return in_place_of_truth(own), self._arrays(rough, rounded(inputs))
        return truth, own

    def copied(self) -> Any:
        """Returns a copy of the program with weights that can be modified."""
        return copy.deepcopy(self.module)

    def widened(self, module: Any) -> Any:
        """Returns a copy of the program, or of the result of `simpler`, computing in float64."""
        wide = copy.deepcopy(module)
        _widen(wide)
        return wide

    def simpler(self, inputs: Sequence[Array]) -> Any:
        """Returns the program in simpler operators.

        Raises:
          Exception: an operator cannot be decomposed.
        """
        raise NotImplementedError

    def _run(self, module: Any, inputs: Sequence[Any]) -> Any:
        raise NotImplementedError

    def _check(self, inputs: Sequence[Array], truth: Sequence[Array]) -> TruthCheck:
        """Compares the truth with the results of simpler operators, if possible."""
        second = None
        with contextlib.suppress(Exception):
            second = self._in_float64(self.simpler(inputs), inputs)
        routes = ("PyTorch", "PyTorch's decompositions")
        return cross_checked(truth, second, routes=routes, where="the program")

    def _in_float64(self, module: Any, inputs: Sequence[Array]) -> list[Array]:
        before = torch.get_default_dtype()
        # Code without an explicit type uses PyTorch's default type.
        torch.set_default_dtype(torch.float64)
        try:
            wide = self.widened(module)
            with _Watch() as watch:
                outputs = self._arrays(
                    wide, [v.astype(np.float64) if is_float(v) else v for v in inputs]
                )
        except Exception as error:
            raise NotWidenedError(self.reason_in(error)) from error
        finally:
            torch.set_default_dtype(before)
        if watch.narrow:
            raise NotWidenedError(f"{watch.narrow[0]} returns a type narrower than float64")
        return outputs

    def reason_in(self, error: Exception) -> str:
        """Returns an error of the program as one line."""
        return error_line(error)

    def _arrays(self, module: Any, inputs: Sequence[Array]) -> list[Array]:
        with torch.no_grad():
            return [as_array(value) for value in as_tuple(plain(self._run(module, inputs)))]


class TorchProgram(RunnableProgram):
    """A program of `torch.export`."""

    def __init__(self, parameters: Parameters) -> None:
        torch.nn.Module.__init__(self)
        ProgramModel.__init__(self, parameters)
        self._check_archive()
        with (
            refusing(f"{self.path} is not a valid torch.export program"),
            _no_pickles(unless=parameters.get("pickled") is True),
        ):
            exported = torch.export.load(self.path)
        self._taken = _signature(exported, self.path.name)
        self._spec, self._leaves = exported.call_spec.in_spec, _leaves_of(exported)
        self._exported = exported
        # The module would check its inputs by guards, which exporters would see as operations.
        self.module = exported.module(check_guards=False)
        self.check_types(tensor.dtype for tensor in exported.state_dict.values())

    def signature(self) -> Signature:
        """Returns the program's signature."""
        return self._taken

    def simpler(self, inputs: Sequence[Array]) -> Any:
        """Returns the program after PyTorch's decompositions."""
        return self._exported.run_decompositions().module(check_guards=False)

    def _run(self, module: Any, inputs: Sequence[Any]) -> Any:
        given = iter(map(as_tensor, inputs))
        leaves = [next(given) if is_tensor else value for is_tensor, value in self._leaves]
        arguments, keywords = tree_unflatten(leaves, self._spec)
        return module(*arguments, **keywords)

    def _check_archive(self) -> None:
        """Raises UserModelError for a file that is not an archive, or that holds code."""
        try:
            code = torch_archives.code_in_export(self.path)
        except torch_archives.NotAnArchiveError as error:
            raise UserModelError(
                f"{self.path} is not a valid torch.export program: {error}"
            ) from None
        if code is not None and self.model_parameters.get("pickled") is not True:
            raise UserModelError(
                f"{self.path} contains {code}, which can run code when loaded; pass --allow-code "
                "if you trust it"
            )


def create_model(**parameters: Any) -> TorchProgram:
    """Returns the program of a file.

    Raises:
      UserModelError: the file is incomplete, or could run code.
    """
    return TorchProgram(parameters)


@contextmanager
def _no_pickles(*, unless: bool) -> Iterator[None]:
    before = os.environ.get(_NO_PICKLES)
    if not unless:
        os.environ[_NO_PICKLES] = "1"
    try:
        yield
    finally:
        os.environ.pop(_NO_PICKLES, None)
        if before is not None:
            os.environ[_NO_PICKLES] = before


def _leaves_of(exported: Any) -> list[tuple[bool, Any]]:
    """Returns for each input whether it is a tensor, and otherwise its value."""
    count = exported.call_spec.in_spec.num_leaves
    if exported.example_inputs is None:
        return [(True, None)] * count
    return [(isinstance(v, torch.Tensor), v) for v in tree_leaves(exported.example_inputs)]


def _signature(exported: Any, where: str) -> Signature:
    values = {n.name: n.meta["val"] for n in exported.graph.nodes if n.op == "placeholder"}
    names = [
        name
        for name in exported.graph_signature.user_inputs
        if isinstance(name, str) and isinstance(values.get(name), torch.Tensor)
    ]
    tensors = [values[name] for name in names]
    kinds = [TYPES.get(tensor.dtype) for tensor in tensors]
    shapes = [tuple(s if isinstance(s, int) else str(s) for s in t.shape) for t in tensors]
    return Signature.of(where, zip(names, kinds, shapes, strict=True))


class _Watch(TorchDispatchMode):
    """Records operators with floating-point results of less than 64 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if any(tensor.dtype in NARROW for tensor in tensors):
            self.narrow.append(str(func))
        return result


def _widen(module: torch.nn.Module) -> None:
    """Makes a program compute in float64, in place: weights, constants, and types in its graph."""
    module.double()
    for part in module.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, torch.Tensor) and value.dtype in NARROW:
                setattr(part, name, value.double())
        if isinstance(part, torch.fx.GraphModule):
            for node in part.graph.nodes:
                node.args = map_aggregate(node.args, _wide)
                node.kwargs = map_aggregate(node.kwargs, _wide)
            part.recompile()


def _wide(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value


def _round(module: torch.nn.Module) -> None:
    """Perturbs each weight by `rounding_of` its type."""
    random = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for tensor in module.parameters():
            if tensor.dtype in NARROW:
                off = torch.rand(tensor.shape, generator=random, dtype=torch.float64) * 2 - 1
                size = rounding_of(numpy_dtype(TYPES[tensor.dtype]))
                tensor.copy_((tensor.double() * (1 + size * off)).to(tensor.dtype))
