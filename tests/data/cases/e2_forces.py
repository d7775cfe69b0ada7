"""A force field: the forward differentiates its own energy (autograd.grad in forward).

RIGHT: eager `ok` (energy is one number, forces 30), ONNX Runtime `unsupported`.
"""

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(3, 32)
        self.b = torch.nn.Linear(32, 1)

    def forward(self, positions):
        with torch.enable_grad():
            p = positions.detach().requires_grad_(True)
            energy = self.b(torch.tanh(self.a(p))).sum()
            (force,) = torch.autograd.grad(energy, p)
        return energy.detach(), -force


def example_inputs():
    return torch.randn(10, 3)
