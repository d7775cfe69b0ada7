"""Child process of `cbs doctor --ceilings` for the bandwidth of a copy in memory.

`python -m comparative_benchmark.analysis.roofline._copy BYTES THREADS` prints one line of JSON.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from comparative_benchmark.analysis.roofline._gemm import fastest, limit_threads


def main(size_bytes: int, threads: int) -> None:
    """Copies a buffer in one piece per thread; prints the best rate of bytes read and written.

    Reading for ownership, which some stores cause, is not counted (as in STREAM).
    """
    limit_threads(threads)
    source, target = (np.ones(size_bytes // 8, np.int64) for _ in range(2))
    pieces = list(zip(np.array_split(target, threads), np.array_split(source, threads)))
    with ThreadPoolExecutor(threads) as pool:  # numpy copies without the interpreter's lock

        def copy() -> None:
            for done in [pool.submit(np.copyto, *piece) for piece in pieces]:
                done.result()

        copy()
        fastest_s = fastest(copy)
    rate = 2 * source.nbytes / fastest_s / 1e9
    print(json.dumps({"version": np.__version__, "gb_per_s": rate}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
