"""An LSTM whose first state is made in forward by torch.zeros, as in every tutorial.

RIGHT: `ok` (or `agreed` with the reason) for eager, ONNX Runtime and OpenVINO; not `failed` with "Float and Double".
"""

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.r = torch.nn.LSTM(8, 16, batch_first=True)
        self.head = torch.nn.Linear(16, 3)

    def forward(self, x):
        h0 = torch.zeros(1, x.size(0), 16)
        c0 = torch.zeros(1, x.size(0), 16)
        y, _ = self.r(x, (h0, c0))
        return self.head(y[:, -1])


def example_inputs():
    return torch.randn(4, 10, 8)
