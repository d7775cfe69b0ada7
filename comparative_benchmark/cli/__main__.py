"""`python -m comparative_benchmark.cli` is `cbs`, too."""

import sys

from comparative_benchmark.cli.command import main

if __name__ == "__main__":
    sys.exit(main())
