"""Entry point of each backend's `run_benchmarks.py`: `cbs run` with the folder's backend."""

import sys
from pathlib import Path

from comparative_benchmark.cli.command import run_backend_main

if __name__ == "__main__":
    sys.exit(run_backend_main(Path(sys.argv[0]).resolve().parent.name))
