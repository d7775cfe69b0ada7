"""A model that is fitted for a moment when it is made (ten steps of SGD in the factory).

RIGHT: `ok` in eager PyTorch as in ONNX Runtime: the file of the user is loaded with gradients on, as Python does.
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
