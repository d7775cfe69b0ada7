"""The import path of the backend interface that packages out of the tree use."""

from comparative_benchmark.backends.api import *  # noqa: F403 (all of it, whatever it grows to)
