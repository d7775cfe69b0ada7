"""The identity of a program that XLA compiled for TensorFlow."""

import hashlib
import itertools
import re
from collections.abc import Sequence
from typing import Any

# The operators of `tf.py_function` and `tf.numpy_function`.
_PYTHON = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})
_MODULE = re.compile(r"^HloModule ([\w.-]+)")
# Where an operation came from; strings in it may hold braces.
_METADATA = re.compile(r',? metadata=\{(?:"(?:[^"\\]|\\.)*"|[^"}])*\}')


def python_operators(concrete: Any) -> list[str]:
    """Returns the types of a function's operators that call Python, without duplicates."""
    definition = concrete.graph.as_graph_def()
    functions = (function.node_def for function in definition.library.function)
    nodes = itertools.chain(definition.node, *functions)
    return sorted({node.op for node in nodes if node.op in _PYTHON})


def optimized_hlo(function: Any, inputs: Sequence[Any]) -> str:
    """Returns the HLO of a `tf.function(jit_compile=True)` as XLA has optimised it.

    XLA compiles once more for that: TensorFlow does not give out the program that it runs.
    """
    text: str = function.experimental_get_compiler_ir(*inputs)(stage="optimized_hlo")
    return text


def fingerprint(hlo: str) -> str:
    """Returns the sha256 of a program's text.

    Without metadata, which hold lines of Python source, and without the module's name, which holds
    a number that TensorFlow counts up from function to function.
    """
    text = _METADATA.sub("", hlo)
    if module := _MODULE.match(text):
        text = text.replace(module[1], "module")
    return hashlib.sha256(text.encode()).hexdigest()
