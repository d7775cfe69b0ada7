"""Complex output of an FFT.

RIGHT: ONNX Runtime `ok` (complex as pairs along a last axis) or `unsupported` with that reason; not `wrong_output`.
"""

import torch


class Net(torch.nn.Module):
    def forward(self, x):
        f = torch.fft.rfft(x)
        return f, f.abs()


def example_inputs():
    return torch.randn(2, 64)
