"""Nested tuples and lists, a dictionary, dataclasses on both sides, None, and a constant."""

import dataclasses

import torch


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    mask: torch.Tensor | None = None


@dataclasses.dataclass
class Out:
    y: torch.Tensor
    loss: torch.Tensor | None
    kind: str = "a"


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(8, 4)

    def forward(self, batch, pair, options, extra=None, scale=1.0):
        a, (b, c) = pair
        h = self.l(batch.x) * scale + options["bias"]["b"]
        return Out(y=h + a + b * c, loss=h.mean())


def example_inputs():
    return (
        Batch(torch.randn(2, 8)),
        (torch.randn(2, 4), [torch.randn(4), torch.ones(1)]),
        {"bias": {"b": torch.randn(4)}},
        None,
        2.5,
    )
