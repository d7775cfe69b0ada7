"""A folder without weights, whose inputs are a list, and whose get_module() draws new ones."""

import torch
from torchbenchmark.util.env_check import set_random_seed
from torchbenchmark.util.model import BenchmarkModel


class Step(torch.nn.Module):
    def forward(self, u, v):
        return u + 0.1 * torch.sin(v), v * 0.9


class Model(BenchmarkModel):
    DEFAULT_EVAL_BSIZE = 256

    def __init__(self, test, device, batch_size=None, extra_args=[]):
        super().__init__(test=test, device=device, batch_size=batch_size, extra_args=extra_args)
        set_random_seed()
        self.model = Step()
        self.state = [torch.randn(self.batch_size, dtype=torch.float64) for _ in range(2)]

    def get_module(self):
        return self.model, [torch.randn_like(value) for value in self.state]

    def eval(self):
        u, v = self.state
        for _ in range(3):
            u, v = self.model(u, v)
        return u, v
