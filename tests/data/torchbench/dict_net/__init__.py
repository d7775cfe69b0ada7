"""A folder whose inputs have names, and whose outputs are a dictionary; it trains in one piece."""

import torch
from torchbenchmark.tasks import NLP

from ...util.model import BenchmarkModel
from .tagger import Tagger


class Model(BenchmarkModel):
    task = NLP.LANGUAGE_MODELING
    DEFAULT_TRAIN_BSIZE = 2
    DEFAULT_EVAL_BSIZE = 2
    ALLOW_CUSTOMIZE_BSIZE = False

    def __init__(self, test, device, batch_size=None, extra_args=[]):
        super().__init__(test=test, device=device, batch_size=batch_size, extra_args=extra_args)
        self.model = Tagger().to(device)
        tokens = torch.randint(0, 50, (self.batch_size, 12)).to(device)
        self.example_inputs = {"tokens": tokens, "mask": torch.ones_like(tokens)}
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def get_module(self):
        return self.model, self.example_inputs

    def train(self):
        self.optimizer.zero_grad()
        self.model(**self.example_inputs)["scores"].square().mean().backward()
        self.optimizer.step()

    def eval(self):
        return (self.model(**self.example_inputs)["scores"],)
