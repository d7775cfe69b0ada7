"""Checks if IREE keeps the sums of an fp16 matrix product in fp16; prints errors in ulps of 1."""

import jax
import numpy as np
from iree import runtime
from iree.compiler import tools

_FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
)


def main() -> None:
    rng = np.random.default_rng(0)
    for depth in (64, 512, 2048):
        a = rng.normal(size=(32, depth)).astype(np.float16)
        b = (rng.normal(size=(depth, 64)) / np.sqrt(depth)).astype(np.float16)
        truth = a.astype(np.float64) @ b.astype(np.float64)
        wide = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
        narrow = np.zeros_like(wide)
        for step in range(depth):
            narrow += a[:, step : step + 1] * b[step : step + 1]
        errors = {"iree": _by_iree(a, b), "sums in fp32": wide, "sums in fp16": narrow}
        print(depth, {name: round(_error(value, truth), 3) for name, value in errors.items()})


def _by_iree(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    program = str(jax.jit(lambda x, y: x @ y).lower(a, b).compiler_ir("stablehlo"))
    compiled = tools.compile_str(program, input_type="stablehlo", extra_args=_FLAGS)
    context = runtime.SystemContext(config=runtime.Config("local-task"))
    module = runtime.VmModule.copy_buffer(context.instance, compiled)
    context.add_vm_module(module)
    return np.asarray(context.modules[module.name]["main"](a, b))


def _error(value: np.ndarray, truth: np.ndarray) -> float:
    error = value.astype(np.float64) - truth
    return float(np.sqrt((error**2).mean() / (truth**2).mean())) * 2**10


if __name__ == "__main__":
    main()
