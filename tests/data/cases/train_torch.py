"""A PyTorch module with a loss, dropout and a layer that the loss does not use."""

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(8, 32)
        self.n = torch.nn.LayerNorm(32)
        self.b = torch.nn.Linear(32, 4)
        self.unused = torch.nn.Linear(3, 3)
        self.d = torch.nn.Dropout(0.1)

    def forward(self, x):
        return self.b(self.d(torch.relu(self.n(self.a(x)))))


def create_model():
    return Net()


def loss(model, batch):
    return torch.nn.functional.cross_entropy(model(batch["x"]), batch["y"])


def example_batch():
    return ({"x": torch.randn(16, 8), "y": torch.randint(0, 4, (16,))},)
