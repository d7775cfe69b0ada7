"""A model that is briefly fitted when it is created (ten steps of SGD in the factory).

RIGHT: `ok` in eager PyTorch and in ONNX Runtime: the user's file is loaded with gradients enabled, as in Python.
"""

import torch


def create_model():
    torch.manual_seed(0)
    m = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    o = torch.optim.SGD(m.parameters(), lr=0.05)
    x = torch.randn(64, 4)
    y = x.sum(-1, keepdim=True)
    for _ in range(10):
        o.zero_grad()
        torch.nn.functional.mse_loss(m(x), y).backward()
        o.step()
    return m.eval()


def example_inputs():
    return torch.randn(8, 4)
