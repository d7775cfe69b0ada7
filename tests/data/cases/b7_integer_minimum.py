"""Ties in min/argmin/topk/sort of integers (after openvino#13491, openvino#30666).

RIGHT: eager `ok`: integers are compared exactly, equal ones as well.
"""

import torch


class Net(torch.nn.Module):
    def forward(self, x):
        v, i = x.min(dim=-1)
        return (
            v,
            i,
            torch.argmax(x, -1),
            torch.topk(x, 4, -1).indices,
            torch.sort(x, dim=-1, stable=True).indices,
        )


def example_inputs():
    x = torch.full((2, 64), -1, dtype=torch.int32)
    x[:, :4] = 0
    x[1, 40] = 3
    return (x,)
