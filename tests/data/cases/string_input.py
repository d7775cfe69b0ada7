"""A string among the inputs."""

import torch


class Net(torch.nn.Module):
    def forward(self, x, mode):
        return x


def example_inputs():
    return {"x": torch.ones(3), "mode": "mean"}
