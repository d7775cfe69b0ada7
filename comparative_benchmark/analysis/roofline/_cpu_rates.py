"""Child process of `cbs doctor --ceilings` that measures a CPU, and prints one line of JSON.

python -m comparative_benchmark.analysis.roofline._cpu_rates gemm LIBRARY DATA_TYPE THREADS
python -m comparative_benchmark.analysis.roofline._cpu_rates copy BYTES THREADS
"""

import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from comparative_benchmark.backends.host_settings import spread

# Small ones stay in the caches, large ones hide the cost of a call; the best counts.
_SIZES = (512, 1024, 2048, 4096)
# Repeated long enough for a busy machine to have quiet moments.
_BUDGET_S, _LEAST_REPEATS = 0.6, 3
# Longer products are skipped: some data types have no unit in the CPU.
_LONGEST_S = 1.0
_TORCH_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8"}


def measure_gemm(library: str, data_type: str, threads: int) -> None:
    """Prints the best rate of a library's matrix products, of all sizes and repeats."""
    _limit_threads(threads)
    module = importlib.import_module(library)
    make = {"numpy": _numpy, "torch": _torch, "jax": _jax, "onnxruntime": _onnxruntime}[library]
    best, best_size, fastest_s = 0.0, 0, 0.0
    for size in _SIZES:
        if fastest_s * 8 > _LONGEST_S:
            break
        multiply = make(module, data_type, size)
        multiply()  # compiles, packs, starts threads
        fastest_s = _fastest(multiply)
        gflops = 2 * size**3 / fastest_s / 1e9
        if gflops > best:
            best, best_size = gflops, size
    answer = {"version": module.__version__, "size": best_size, "gflops": best}
    print(json.dumps(answer))


def measure_copy(size_bytes: int, threads: int) -> None:
    """Copies a buffer in one piece per thread; prints the best rate of bytes read and written.

    Reading for ownership, which some stores cause, is not counted (as in STREAM).
    """
    _limit_threads(threads)
    import numpy as np

    source, target = (np.ones(size_bytes // 8, np.int64) for _ in range(2))
    pieces = list(zip(np.array_split(target, threads), np.array_split(source, threads)))
    with ThreadPoolExecutor(threads) as pool:  # numpy copies without the interpreter's lock

        def copy() -> None:
            for done in [pool.submit(np.copyto, *piece) for piece in pieces]:
                done.result()

        copy()
        fastest_s = _fastest(copy)
    rate = 2 * source.nbytes / fastest_s / 1e9
    print(json.dumps({"version": np.__version__, "gb_per_s": rate}))


def _limit_threads(threads: int) -> None:
    """Limits this process's CPUs and threads; must run before any library is imported."""
    cpus = spread(os.sched_getaffinity(0))
    if threads > len(cpus):
        raise SystemExit(f"{threads} threads requested, but only {len(cpus)} CPUs available")
    os.sched_setaffinity(0, cpus[:threads])
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)
    os.environ["JAX_PLATFORMS"] = "cpu"


def _fastest(call: Callable[[], Any]) -> float:
    """Returns the seconds of the fastest of several calls."""
    seconds: list[float] = []
    while len(seconds) < _LEAST_REPEATS or sum(seconds) < _BUDGET_S:
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _numpy(numpy: Any, data_type: str, size: int) -> Callable[[], Any]:
    if data_type != "fp32":
        raise SystemExit(f"numpy cannot compute {data_type} products with BLAS")
    left, right = (numpy.full((size, size), 0.5, numpy.float32) for _ in range(2))
    result = numpy.empty((size, size), numpy.float32)
    return lambda: numpy.matmul(left, right, out=result)


def _torch(torch: Any, data_type: str, size: int) -> Callable[[], Any]:
    dtype = getattr(torch, _TORCH_TYPES[data_type])
    if data_type == "int8":
        factors = [torch.full((size, size), 3, dtype=dtype) for _ in range(2)]
        return lambda: torch._int_mm(*factors)  # noqa: SLF001  # what torchao's recipes call
    left, right, result = (torch.full((size, size), 0.5, dtype=dtype) for _ in range(3))
    return lambda: torch.mm(left, right, out=result)


def _jax(jax: Any, data_type: str, size: int) -> Callable[[], Any]:
    dtype = getattr(jax.numpy, _TORCH_TYPES[data_type])
    is_int8 = data_type == "int8"
    sums = jax.numpy.int32 if is_int8 else None
    left, right = (jax.numpy.full((size, size), 3 if is_int8 else 0.5, dtype) for _ in range(2))
    multiply = jax.jit(lambda a, b: jax.lax.dot(a, b, preferred_element_type=sums))
    return lambda: multiply(left, right).block_until_ready()


def _onnxruntime(onnxruntime: Any, _: str, size: int) -> Callable[[], Any]:
    """Returns a `MatMulInteger` of unsigned and signed numbers, with the second factor packed."""
    if not importlib.util.find_spec("onnx"):
        raise SystemExit("onnx is not installed, but is needed to write the program")
    import numpy as np
    from onnx import TensorProto, helper

    weight = helper.make_tensor(
        "b", TensorProto.INT8, (size, size), np.full((size, size), 3, np.int8).tobytes(), raw=True
    )
    given, result = (
        helper.make_tensor_value_info(name, element_type, (size, size))
        for name, element_type in (("a", TensorProto.UINT8), ("c", TensorProto.INT32))
    )
    product = helper.make_node("MatMulInteger", ["a", "b"], ["c"])
    graph = helper.make_graph([product], "product", [given], [result], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )
    feed = {"a": np.full((size, size), 3, np.uint8)}
    return lambda: session.run(None, feed)


if __name__ == "__main__":
    _, measured, *arguments, thread_count = sys.argv
    if measured == "gemm":
        measure_gemm(arguments[0], arguments[1], int(thread_count))
    else:
        measure_copy(int(arguments[0]), int(thread_count))
