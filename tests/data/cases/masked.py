"""Logits with banned classes at -1e9. RIGHT: a program that returns 0 for every other logit is `wrong_output`."""

import torch


class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.score = torch.nn.Linear(16, 50)
        self.register_buffer("banned", torch.arange(50) % 7 == 0)

    def forward(self, x):
        return self.score(x).masked_fill(self.banned, -1e9)


def example_inputs():
    return torch.randn(8, 16)
