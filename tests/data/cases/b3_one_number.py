"""One number comes out: an energy, a loss, a score of batch 1.

RIGHT: every backend `ok` (or a status other than an accusation); exit code 0. One number is compared as well as many.
"""

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(16, 1)

    def forward(self, x):
        return self.l(x)


def example_inputs():
    return torch.randn(1, 16)
