"""A uint8 image in NHWC that the model itself normalises.

RIGHT: measured, as `agreed` with a line "no float64 run: the model says .float()"; not `failed`.
"""

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.c = torch.nn.Conv2d(3, 8, 3, stride=2)

    def forward(self, image):
        x = image.permute(0, 3, 1, 2).float() / 255
        y = self.c(x).amax((2, 3))
        return y, (y.sigmoid() * 255).round().to(torch.uint8)


def example_inputs():
    return torch.randint(0, 256, (2, 32, 32, 3), dtype=torch.uint8)
