"""An output without elements, and a 0-d one.

RIGHT: `ok` (an empty output has the right shape; the sum and the product are judged), exit code 0.
"""

import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return x[:, 8:], x.sum(), x * 2


def example_inputs():
    return torch.randn(4, 8)
