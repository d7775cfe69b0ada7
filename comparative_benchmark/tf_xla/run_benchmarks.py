#!/usr/bin/env python3
"""Runs benchmarks with tf_xla; see --help."""

import sys

from comparative_benchmark.cli import run_backend_main

if __name__ == "__main__":
    sys.exit(run_backend_main("tf_xla"))
