"""What the `run_benchmarks.py` of each backend runs: `cbs run` with the backend of its folder."""

import sys
from pathlib import Path

from comparative_benchmark.cli.command import run_backend_main

if __name__ == "__main__":
    sys.exit(run_backend_main(Path(sys.argv[0]).resolve().parent.name))
