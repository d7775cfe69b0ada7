"""A custom autograd function.

RIGHT: `cbs run i1_train_is_ignored.py -t train` measures a training step or refuses in a sentence; it does not give the latency of forward.
"""

import torch


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() <= 1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(8, 8)

    def forward(self, x):
        return Clip.apply(self.l(x))


def example_inputs():
    return torch.randn(4, 8)
