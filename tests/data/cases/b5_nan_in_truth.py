"""A large constant table made in forward (a sinusoid of 4096 x 512) and a nan-producing log.

RIGHT: NaN in the same places as the truth is `ok`, or the run cannot be judged; never `wrong_output`. Output 0: ONNX Runtime is not further from the exact table (1.5e-5) than PyTorch (2.0e-5), so no accusation without a line that the truth holds float32 parts.
"""

import torch


class Net(torch.nn.Module):
    def forward(self, x, pos):
        i = torch.arange(256, dtype=torch.float32)
        angle = torch.arange(4096, dtype=torch.float32)[:, None] / 10000 ** (i / 256)
        table = torch.cat([angle.sin(), angle.cos()], -1)
        return x + table[pos], torch.log(x)


def example_inputs():
    return torch.randn(2, 8, 512), torch.randint(0, 4096, (2, 8))
