#!/usr/bin/env python3
"""Runs benchmarks with onnxruntime; see --help."""

import sys

from comparative_benchmark.cli import run_backend_main

if __name__ == "__main__":
    sys.exit(run_backend_main("onnxruntime"))
