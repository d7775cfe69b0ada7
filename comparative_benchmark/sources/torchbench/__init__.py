"""TorchBench's model folders, in both of its protocols, anywhere on disk.

The parent process uses `folders`, which imports nothing from a folder; a worker loads
`model`. `host` is the base package that folders import as `torchbenchmark`: it is on the path of a
worker that loads a folder, and nowhere else.
"""
