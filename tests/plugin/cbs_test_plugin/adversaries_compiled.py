"""Linear layers in PyTorch that are right, and that a compiler runs in part or not at all."""

from typing import Any

FAULTS = ("gives-up-compiling", "recompiles-in-each-call", "mostly-eager", "half-given-up")
# Right programs that leave little or nothing to eager execution.
RIGHT = ("none", "breaks-a-little")


def create_model(fault: str, **parameters: Any) -> Any:
    """Returns a layer with a fault, or a right one."""
    import torch

    from openxla.benchmark.operators.in_torch import create_model

    right = create_model(**parameters)
    kind: Any = type(right)

    class Counting(kind):
        runs = 0
        step = 1e-30  # below any rounding, and another constant in each program

        def forward(self, x: Any) -> Any:
            self.runs += 1
            return super().forward(x) + self.step * self.runs

    class Equal(Counting):
        step = 0  # the programs are equal, so that the second one comes from a cache

    class MostlyEager(kind):
        @torch.compiler.disable
        def outside(self, x: Any) -> Any:
            for _ in range(10):
                y = super().forward(x)
            return y

        def forward(self, x: Any) -> Any:
            return self.outside(x * 1.0) * 1.0

    class HalfGivenUp(kind):
        runs = 0

        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            torch._dynamo.graph_break()
            self.runs += 1
            return y + 1e-30 * self.runs

    class BreaksALittle(kind):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            if float(y.sum()) == float("inf"):
                y = y * 2
            return y * 1.0

    classes = (Counting, Equal, MostlyEager, HalfGivenUp, kind, BreaksALittle)
    right.__class__ = dict(zip((*FAULTS, *RIGHT), classes, strict=True))[fault]
    return right
