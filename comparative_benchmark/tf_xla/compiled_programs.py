"""Programs that XLA compiled for TensorFlow: their identity, and their persistent cache."""

import hashlib
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

_FLAG = re.compile(r"--tf_xla_persistent_cache_directory=(\S+)")

# By file, the values that change when it is written again.
Files = Mapping[Path, tuple[int, int]]


@attrs.frozen(kw_only=True)
class CacheUse:
    """Cache use of one compilation; None for unknown values.

    Attributes:
      hits: 1 if the program was cached.
      misses: number of programs that were compiled and written.
      size_bytes: size of what was loaded or written.
    """

    hits: int | None = None
    misses: int | None = None
    size_bytes: int | None = None


class PersistentCache:
    """The persistent cache's directory, from the flags of this process."""

    def __init__(self) -> None:
        found = _FLAG.search(os.environ.get("TF_XLA_FLAGS", ""))
        self._directory = Path(found[1]) if found else None

    def files(self) -> Files:
        """Returns the files in the cache."""
        if self._directory is None or not self._directory.is_dir():
            return {}
        states = {path: path.stat() for path in self._directory.iterdir() if path.is_file()}
        return {path: (state.st_ino, state.st_mtime_ns) for path, state in states.items()}

    def use_since(self, before: Files) -> CacheUse:
        """Returns the cache use of one compilation that began with these files in the cache.

        Unknown if the cache is empty: it is off, or it cannot hold the program.
        """
        after = self.files()
        written = [path for path, state in after.items() if before.get(path) != state]
        if not after:
            return CacheUse()
        return CacheUse(
            hits=int(not written),
            misses=len(written),
            size_bytes=sum(path.stat().st_size for path in written or after),
        )


# The operators of `tf.py_function` and `tf.numpy_function`.
_PYTHON = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})
_MODULE = re.compile(r"^HloModule ([\w.-]+)")
# Source location of an operation; its strings may contain braces.
_METADATA = re.compile(r',? metadata=\{(?:"(?:[^"\\]|\\.)*"|[^"}])*\}')


def python_operators(concrete: Any) -> list[str]:
    """Returns the types of a function's operators that call Python, without duplicates."""
    definition = concrete.graph.as_graph_def()
    functions = (function.node_def for function in definition.library.function)
    nodes = itertools.chain(definition.node, *functions)
    return sorted({node.op for node in nodes if node.op in _PYTHON})


def optimized_hlo(function: Any, inputs: Sequence[Any]) -> str:
    """Returns the optimised HLO of a `tf.function(jit_compile=True)`.

    XLA compiles again for that: TensorFlow does not expose the program that it runs.
    """
    text: str = function.experimental_get_compiler_ir(*inputs)(stage="optimized_hlo")
    return text


def fingerprint(hlo: str) -> str:
    """Returns the sha256 of a program's text.

    It leaves out metadata, which hold lines of Python source, and the module's name, which holds
    TensorFlow's running number of the function.
    """
    text = _METADATA.sub("", hlo)
    if module := _MODULE.match(text):
        text = text.replace(module[1], "module")
    return hashlib.sha256(text.encode()).hexdigest()
