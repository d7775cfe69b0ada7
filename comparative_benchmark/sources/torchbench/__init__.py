"""TorchBench's model folders, of both of its protocols, anywhere on disk.

`folders` and `cases` are the parent's side and import nothing of a folder; `model` is what a worker
loads. `host` is the base package that folders import under the name `torchbenchmark`: it is on the
path of a worker that loads a folder, and nowhere else.
"""
