"""TorchBench's model folders, in both of its protocols, anywhere on disk.

The parent process uses `folders`, which imports nothing from a folder; a worker loads
`model`. `host` is the base package that folders import as `torchbenchmark`. Workers that load a
folder, install.py, and userbenchmarks outside a TorchBench checkout have it on their path.
"""
