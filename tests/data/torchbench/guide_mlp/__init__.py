"""A folder by the guide of 2021: relative imports, data next to the code, its own seed."""

import random

import numpy as np
import torch

from ...util.model import BenchmarkModel
from torchbenchmark.tasks import OTHER

from .parts.data import load_batch
from .parts.net import Net

torch.manual_seed(1337)
random.seed(1337)
np.random.seed(1337)


class Model(BenchmarkModel):
    task = OTHER.OTHER_TASKS

    def __init__(self, device=None, jit=False):
        super().__init__()
        self.device = device
        self.jit = jit
        self.model = Net().to(device)
        self.x, self.y = (value.to(device) for value in load_batch())
        if jit:
            self.model = torch.jit.script(self.model)
        self.loss = torch.nn.MSELoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def get_module(self):
        return self.model, (self.x,)

    def train(self, niter=1):
        self.model.train()
        for _ in range(niter):
            self.optimizer.zero_grad()
            self.loss(self.model(self.x), self.y).backward()
            self.optimizer.step()

    def eval(self, niter=1):
        self.model.eval()
        for _ in range(niter):
            self.model(self.x)


if __name__ == "__main__":
    m = Model(device="cpu", jit=False)
    m.train()
    m.eval()
