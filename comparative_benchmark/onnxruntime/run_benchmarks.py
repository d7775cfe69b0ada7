#!/usr/bin/env python3
"""Runs benchmarks with onnxruntime; see --help."""

import runpy

if __name__ == "__main__":
    # Started as a program, not imported: backends do not depend on the command line.
    runpy.run_module("comparative_benchmark.cli.run_benchmarks", run_name="__main__")
