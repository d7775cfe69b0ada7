"""Compile time of verified cases, with cold and with warm caches, through every backend."""

from comparative_benchmark.interop.userbenchmarks import suite

BM_NAME = "compile_latency"


def run(args: list[str]) -> int:
    """Compiles the cases in fresh processes, cold and warm in turns, and leaves their metrics."""
    return suite.run(BM_NAME, args, "--compile-only")
