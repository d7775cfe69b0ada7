"""Operators that the importer or IREE's compiler gets wrong are decomposed before the import."""

import numpy as np
import pytest
from agreement_support import need
from framework_process import run_script

pytestmark = pytest.mark.frameworks

SCRIPT = """
import contextlib, sys
from pathlib import Path
import numpy as np
import torch
from torch.nn import functional
from comparative_benchmark.backends.api import BackendContext
from comparative_benchmark.iree.backend import Iree
from openxla.benchmark.devices import HOST_CPU

class Model(torch.nn.Module):
    def forward(self, x):
        gelus = functional.gelu(x, approximate="tanh"), functional.gelu(x)
        windows = (
            functional.avg_pool2d(x, 20, ceil_mode=True),
            functional.avg_pool2d(x, (20, 5), ceil_mode=True),
            functional.avg_pool2d(x, 2),
            functional.avg_pool2d(x, (3, 5), ceil_mode=True),
        )
        return *gelus, *windows

@contextlib.contextmanager
def phase(name):
    yield

target = Path(sys.argv[1])
x = torch.from_numpy(np.load(target / "x.npy"))
context = BackendContext(
    compiler="llvm-cpu", options=(), device=HOST_CPU, threads=1, work_dir=target, phase=phase
)
backend = Iree(context)
backend.load(Model().eval(), [x.numpy()])
backend.compile()
outputs = backend.fetch(backend.dispatch())
np.savez(target / "outputs.npz", *outputs)
np.savez(target / "due.npz", *[value.numpy() for value in Model()(x.double())])
"""


def test_what_is_written_out_is_right(tmp_path, environment):
    need("torch")
    need("iree")
    x = np.random.default_rng(0).normal(scale=2, size=(1, 3, 6, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    run_script(SCRIPT, [str(tmp_path)], environment, framework="torch")
    outputs, due = np.load(tmp_path / "outputs.npz"), np.load(tmp_path / "due.npz")
    assert len(outputs.files) == len(due.files) == 6
    for name in due.files:
        assert outputs[name].shape == due[name].shape
        np.testing.assert_allclose(outputs[name], due[name], rtol=2e-6, atol=2e-6)
