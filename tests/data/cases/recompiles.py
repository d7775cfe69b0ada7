"""Counts its calls, so Inductor recompiles until it gives up and runs eagerly.

RIGHT: the row `pt_inductor:inductor` is not `ok`: most timed iterations ran no compiled graph, and this is the reason.
"""

import torch


class Recompiles(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.relu(self.layer(x)) + 1e-30 * self.calls


def example_inputs():
    return (torch.randn(4, 32),)
