"""A mean over the last axis: reversing that axis changes nothing.

RIGHT: a program that returns what it computed while loading, or on its first call, is `wrong_output` or not ranked.
"""

import torch


class Mean(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return (x * self.gain).mean(-1)


def example_inputs():
    return torch.rand(64, 200_000)
