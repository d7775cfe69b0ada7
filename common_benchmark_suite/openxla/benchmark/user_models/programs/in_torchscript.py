"""In a worker: a TorchScript archive written by `torch.jit.save`."""

from collections.abc import Sequence
from typing import Any

import torch

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.pt.tensors import as_tensor
from openxla.benchmark.user_models.inputs import Array
from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.programs import torch_archives
from openxla.benchmark.user_models.programs.in_torch_export import NARROW, RunnableProgram
from openxla.benchmark.user_models.programs.program_model import ProgramModel
from openxla.benchmark.user_models.programs.signature import NamedInputs
from openxla.benchmark.user_models.programs.torch_archives import BUNDLED, reason_in, refuse_code
from openxla.benchmark.user_models.python_files.in_torch import as_array, plain

# Type numbers in TorchScript's code: float16, float32 and bfloat16; float64.
_NARROW_TYPES, _FLOAT64 = (5, 6, 15), 7


class TorchScriptProgram(RunnableProgram):
    """A TorchScript module; the interpreter runs it, compilers get the operators that it calls."""

    def __init__(self, parameters: Parameters) -> None:
        torch.nn.Module.__init__(self)
        ProgramModel.__init__(self, parameters)
        file = torch_archives.read_torchscript(self.path)
        refuse_code(self.path.name, file.code, allowed=parameters.get("pickled") is True)
        self._takes = file.takes
        self.module = self._loaded()
        self.check_types(tensor.dtype for tensor in self.module.state_dict().values())

    def signature(self) -> NamedInputs:  # type: ignore[override]  # it names inputs alone
        """Returns the program's signature."""
        return self._takes

    def generate_default_inputs(self) -> Any:
        """Returns the inputs that the case names, or those in the archive."""
        if specs := self.inputs():
            return [spec.array(place) for place, spec in enumerate(specs)]
        bundled = getattr(self.module, BUNDLED)()
        first = bundled[0] if bundled else ()
        tensors = [v for v in first[: len(self._takes.names)] if isinstance(v, torch.Tensor)]
        if len(tensors) < self._takes.required:
            raise UserModelError(
                f"{self.path.name} lacks example tensors for some required inputs; pass --input"
            )
        return list(map(as_array, tensors))

    def copied(self) -> Any:
        """Returns a copy of the module that shares neither weights nor code with it."""
        copy = self._loaded()
        copy.load_state_dict(self.module.state_dict())
        return copy

    def _loaded(self) -> Any:
        try:
            module = torch.jit.load(str(self.path), map_location="cpu")
        except Exception as error:
            raise UserModelError(
                f"{self.path} is not a valid TorchScript archive: {reason_in(error)}"
            ) from None
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        return module.eval()

    def widened(self, module: Any) -> Any:
        """Returns the module in float64, including the types named in its code."""
        if module is not self.module:
            return super().widened(module)
        wide = self.copied().double()
        for part in wide.modules():
            for name in part._c._method_names():  # noqa: SLF001  # the one door to its graphs
                _widen(part._c._get_method(name).graph)  # noqa: SLF001
        return wide

    def simpler(self, inputs: Sequence[Array]) -> Any:
        """Returns the operators that the module calls, after PyTorch's decompositions."""
        program = self._exported(tuple(map(as_tensor, inputs)))
        return program.run_decompositions().module(check_guards=False)

    def exportable(self, inputs: Sequence[torch.Tensor]) -> torch.nn.Module:
        """Returns the operators that the module calls on inputs of these shapes.

        PyTorch's exporters and Dynamo do not take TorchScript. Its interpreter runs on tensors
        without data instead; code that looks at values of tensors raises.
        """
        graph = self._exported(tuple(inputs)).module(check_guards=False)
        for name, value in list(vars(graph).items()):
            if isinstance(value, torch.Tensor):
                delattr(graph, name)
                graph.register_parameter(name, torch.nn.Parameter(value, requires_grad=False))
        for node in graph.graph.nodes:
            # `torch.jit.trace` records this operator for each convolution; ONNX has no counterpart.
            if node.target is torch.ops.aten._convolution.default:  # noqa: SLF001  # its name
                node.target, node.args = torch.ops.aten.convolution.default, node.args[:9]
        graph.recompile()
        return graph

    def reason_in(self, error: Exception) -> str:
        """Returns the reason at the end of a TorchScript traceback."""
        return reason_in(error)

    def _exported(self, tensors: tuple[torch.Tensor, ...]) -> Any:
        with torch.no_grad():
            try:
                return torch.export.export(_Hidden(self.module), tensors, strict=False)
            except RuntimeError as error:
                raise _shortened(error) from None

    def _run(self, module: Any, inputs: Sequence[Any]) -> Any:
        try:  # no context manager: this code is timed
            return module(*map(as_tensor, inputs))
        except RuntimeError as error:
            raise _shortened(error) from None


def create_model(**parameters: Any) -> TorchScriptProgram:
    """Returns the program of an archive.

    Raises:
      UserModelError: the archive is incomplete, or holds code.
    """
    return TorchScriptProgram(parameters)


class _Hidden(torch.nn.Module):
    """Calls a TorchScript module, hidden from exporters because they reject its parameters."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self._held = (module,)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return plain(self._held[0](*inputs))


def _shortened(error: RuntimeError) -> RuntimeError:
    """Returns an interpreter error reduced from a traceback to its reason."""
    return RuntimeError(reason_in(error).removeprefix("RuntimeError: "))


def _widen(graph: Any) -> None:
    """Replaces narrower types by float64 in a TorchScript graph and its constants, in place."""
    for node in graph.findAllNodes("prim::Constant", recurse=True):
        kind = node.kindOf("value") if "value" in node.attributeNames() else None
        if kind == "t" and node.t("value").dtype in NARROW:
            node.t_("value", node.t("value").double())
        if kind == "i" and node.i("value") in _NARROW_TYPES:
            for use in node.output().uses():
                if _is_type(use.user, use.offset):
                    with graph.insert_point_guard(use.user):
                        use.user.replaceInput(use.offset, graph.insertConstant(_FLOAT64))


def _is_type(user: Any, place: int) -> bool:
    """Returns whether an argument of an operator is a data type."""
    text = user.schema()
    if text == "(no schema)":
        return False
    arguments = torch._C.parse_schema(text).arguments  # noqa: SLF001  # its public form is a text
    return place < len(arguments) and arguments[place].name == "dtype"
