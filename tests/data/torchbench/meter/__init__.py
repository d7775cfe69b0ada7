"""A folder that draws random numbers in each run."""

import torch
from torchbenchmark.util.model import BenchmarkModel


class Model(BenchmarkModel):
    DEFAULT_EVAL_BSIZE = 4

    def __init__(self, test, device, batch_size=None, extra_args=[]):
        super().__init__(test=test, device=device, batch_size=batch_size, extra_args=extra_args)
        self.model = torch.nn.Linear(6, 6)
        self.x = torch.randn(self.batch_size, 6)

    def get_module(self):
        return self.model, (self.x,)

    def eval(self):
        noise = torch.nn.init.uniform_(torch.empty_like(self.x))
        return (self.model(self.x + noise),)
