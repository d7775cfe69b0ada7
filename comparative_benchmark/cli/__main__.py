"""Runs `cbs` for `python -m comparative_benchmark.cli`."""

import sys

from comparative_benchmark.cli.command import main

if __name__ == "__main__":
    sys.exit(main())
