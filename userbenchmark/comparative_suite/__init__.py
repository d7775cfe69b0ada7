"""Latency, memory and error of verified cases through every backend that is installed."""

from comparative_benchmark.interop.userbenchmarks import suite

BM_NAME = "comparative_suite"


def run(args: list[str]) -> int:
    """Runs the cases, as `cbs run` with the same arguments would, and leaves their metrics."""
    return suite.run(BM_NAME, args)
