import torch

from .layers import Block


class PkgNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Block()
        self.b = Block()

    def forward(self, x):
        return self.b(self.a(x))


def example_inputs():
    return torch.randn(2, 8)
