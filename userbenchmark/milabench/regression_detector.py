"""A regression is what the samples of both runs show; see `userbenchmarks.evidence`."""

from comparative_benchmark.interop.userbenchmarks.evidence import run

__all__ = ["run"]
