#!/usr/bin/env python3
"""Runs benchmarks with tflite; see --help."""

import runpy

if __name__ == "__main__":
    # A program is started, not imported: no backend knows the command line.
    runpy.run_module("comparative_benchmark.cli.run_benchmarks", run_name="__main__")
