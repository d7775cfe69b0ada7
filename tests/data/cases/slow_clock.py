"""Replaces the worker's clock by one that runs 100 times slower; the outputs are right.

RIGHT: not `ok`: the parent measured more time for the block than the sum of its samples.
"""

import sys

import torch


class SlowClock(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(512, 2048)
        self.down = torch.nn.Linear(2048, 512)

    def forward(self, x):
        sampling = sys.modules.get("comparative_benchmark.engine.worker.sampling")
        if sampling is not None and not hasattr(sampling, "slowed"):
            sampling.slowed = True
            clock = sampling._CLOCK
            start = clock()
            sampling._CLOCK = lambda: start + (clock() - start) // 100
        return self.down(torch.relu(self.up(x)))


def example_inputs():
    return torch.randn(64, 512)
