"""Eager PyTorch whose outputs are wrong in a way that an error over the whole output hides."""

from collections.abc import Sequence
from typing import Any

from comparative_benchmark.backend_api import Array, BackendInfo, CompilerInfo
from comparative_benchmark.pt_inductor.backend import PtInductor
from openxla.benchmark.def_types import ModelFrameworkType

BACKEND = BackendInfo(
    name="test_spoiled",
    implementation="cbs_test_plugin.spoiled:Spoiled",
    level="framework_level",
    modules={ModelFrameworkType.PYTORCH: ("torch",)},
    install="nothing",
    compilers=(
        CompilerInfo(name="zeros", description="0 in place of all that is not masked"),
        CompilerInfo(name="kept", description="the outputs of its first call in all others"),
    ),
    packages={"cbs_test_plugin": "cbs-test-plugin"},
)


class Spoiled(PtInductor):
    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        self._way = self.context.compiler
        object.__setattr__(self.context, "compiler", "eager")
        super().load(model, inputs)
        self._first: Any = None

    def dispatch(self) -> Any:
        if self._way == "zeros":
            return super().dispatch()
        if self._first is None:
            self._first = super().dispatch().clone()
        return self._first

    def poison_outputs(self) -> None:
        """What it keeps is its own."""

    def fetch(self, outputs: Any) -> list[Any]:
        found = super().fetch(outputs)
        if self._way == "zeros":
            return [value * (value < -1e8) for value in found]
        return found
