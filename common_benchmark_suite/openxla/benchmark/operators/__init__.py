"""Operators: single operations of networks, written once for each framework.

An operator is a file that defines one `OPERATOR`: its arguments and results for a shape (m, k, n),
and a function in each of PyTorch, JAX and TensorFlow, or in some of them. All its inputs, including
weights, are arguments of the program, so compilers cannot fold them. A layer is an operator that
holds weights like a model. Cases of both are ordinary cases, with the same artifacts, float64 truth
and races.
"""

from openxla.benchmark.operators.definition import (
    FRAMEWORKS,
    Argument,
    Layer,
    Operator,
    Values,
    get,
    operators,
    unknown,
)

__all__ = ["FRAMEWORKS", "Argument", "Layer", "Operator", "Values", "get", "operators", "unknown"]
