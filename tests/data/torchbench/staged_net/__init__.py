"""A folder in today's protocol: absolute imports, staged training, a picture, dropout."""

import torch
from torchbenchmark.tasks import COMPUTER_VISION
from torchbenchmark.util.model import BenchmarkModel

torch.backends.cudnn.deterministic = False
torch.backends.cudnn.benchmark = True


class Model(BenchmarkModel):
    task = COMPUTER_VISION.CLASSIFICATION
    DEFAULT_TRAIN_BSIZE = 4
    DEFAULT_EVAL_BSIZE = 8

    def __init__(self, test, device, batch_size=None, extra_args=[]):
        super().__init__(test=test, device=device, batch_size=batch_size, extra_args=extra_args)
        self.model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Dropout(0.25),
            torch.nn.Linear(8 * 36, 10),
        ).to(device)
        self.example_inputs = (torch.randn(self.batch_size, 3, 8, 8, device=device),)
        self.target = torch.randint(0, 10, (self.batch_size,), device=device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.loss = torch.nn.CrossEntropyLoss()
        self.model.train(test == "train")

    def get_module(self):
        return self.model, self.example_inputs

    def forward(self):
        return self.loss(self.model(*self.example_inputs), self.target)

    def backward(self, losses):
        losses.backward()

    def optimizer_step(self):
        self.optimizer.step()

    def eval(self):
        return (self.model(*self.example_inputs),)
